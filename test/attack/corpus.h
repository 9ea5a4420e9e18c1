// The valid texts that the attack damages.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "heddle/core/base/result.h"
#include "test/attack/tokens.h"

namespace heddle {

struct Seed {
  std::string graph;
  // The plan that a golden parallelizes the graph with; empty if there is none.
  std::string plan;
};

struct Corpus {
  std::vector<Seed> seeds;
  std::vector<std::string> plans;
  // Problems for the solver.
  std::vector<std::string> problems;
  // Values for `--pipeline`: every pass and named pipeline, and the pipelines of goldens.
  std::vector<std::string> passes;
  std::vector<std::string> pipelines;
  // Every distinct token of all texts by kind, and hostile ones.
  std::map<Token::Kind, std::vector<std::string>> words;
  // Lines of graphs, mostly nodes.
  std::vector<std::string> lines;
};

// Reads golden files (.hdt) and single texts, and adds the example of every op.
Result<Corpus> ReadCorpus(const std::vector<std::string>& paths);

}  // namespace heddle
