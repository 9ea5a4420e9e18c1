// How rows divide among experts, for estimates: the rank with the most of them decides.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/base/result.h"
#include "heddle/ir/graph.h"

namespace heddle {

struct ExpertSkew {
  enum class Kind : uint8_t { kUniform, kZipf, kCounts } kind = Kind::kUniform;
  // Expert i of n gets rows in proportion to (i + 1) to the power of minus this.
  double exponent = 0;
  // Measured rows of each expert.
  std::vector<double> counts = {};
};

// `uniform`, `zipf:1.2`, or a file with a number for each expert: a JSON list, or numbers with space between them.
Result<ExpertSkew> ParseExpertSkew(std::string_view text);

// How many times its even share the rank with the most rows gets. Fails where `counts` are of another number of experts.
Result<double> LargestShare(const ExpertSkew& load, int64_t experts, int64_t ranks);

// The graph with as many rows where their number is a symbol, as experts of the most loaded rank get; none if it has no such rows.
Result<std::optional<Graph>> WithExpectedRows(const Mesh& mesh, const Graph& graph,
                                              const ExpertSkew& load);

}  // namespace heddle
