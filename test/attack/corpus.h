// Good texts, from which bad ones are made.
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
  // What a golden parallelizes it with; empty if nothing does.
  std::string plan;
};

struct Corpus {
  std::vector<Seed> seeds;
  std::vector<std::string> plans;
  // Problems for the solver.
  std::vector<std::string> problems;
  // What can be given to `--pipeline`: every pass and every named pipeline; and what goldens give.
  std::vector<std::string> passes;
  std::vector<std::string> pipelines;
  // Every token of every text once, by kind, and hostile ones.
  std::map<Token::Kind, std::vector<std::string>> words;
  // Lines of graphs: nodes, mostly.
  std::vector<std::string> lines;
};

// Reads golden files (.hdt) and single texts, and adds the example of every op.
Result<Corpus> ReadCorpus(const std::vector<std::string>& paths);

}  // namespace heddle
