// Damages texts by moving, dropping and replacing tokens and lines.
#pragma once

#include "test/attack/corpus.h"

namespace heddle {

// A graph, and the seed it was made from.
struct AttackGraph {
  std::string graph;
  const Seed* from;
};
AttackGraph MakeAttackGraph(const Corpus& corpus, AttackDice& dice);
// Returns a plan for an accepted graph.
std::string MakeAttackPlan(const Corpus& corpus, const AttackGraph& graph, AttackDice& dice);
std::string MakeAttackProblem(const Corpus& corpus, AttackDice& dice);

}  // namespace heddle
