// Texts made from good ones by moving, losing and replacing tokens and lines.
#pragma once

#include "test/attack/corpus.h"

namespace heddle {

// A graph, and what it was made from.
struct AttackGraph {
  std::string graph;
  const Seed* from;
};
AttackGraph MakeAttackGraph(const Corpus& corpus, AttackDice& dice);
// A plan for a graph that is accepted.
std::string MakeAttackPlan(const Corpus& corpus, const AttackGraph& graph, AttackDice& dice);
std::string MakeAttackProblem(const Corpus& corpus, AttackDice& dice);

}  // namespace heddle
