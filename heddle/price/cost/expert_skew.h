// Distribution of rows over experts, for estimates. The rank with the most rows determines the
// time.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle::price {

struct ExpertSkew {
  enum class Kind : uint8_t { kUniform, kZipf, kCounts } kind = Kind::kUniform;
  // Expert i of n gets rows in proportion to (i + 1) to the power of minus this.
  double exponent = 0;
  // Measured rows of each expert, by layer. An empty name is for all layers.
  std::map<std::string, std::vector<double>> counts = {};
};

// Parses `uniform`, `zipf:1.2`, or a file with a number for each expert: numbers separated by
// spaces, a JSON list, a JSON object with one list per layer, or the metrics of a training run,
// whose last line with tokens of experts counts.
Result<ExpertSkew> ParseExpertSkew(std::string_view text);

// Load of the rank with the most rows, relative to an even share, for the experts in `scope`. Fails
// if the skew has no counts for them, or counts of another number of experts.
Result<double> LargestShare(const ExpertSkew& skew, std::string_view scope, int64_t experts,
                            int64_t ranks);

// The graph with symbolic row counts replaced by the rows of the most loaded rank; nullopt if it
// has none.
Result<std::optional<Graph>> WithExpectedRows(const Mesh& mesh, const Graph& graph,
                                              const ExpertSkew& skew);

}  // namespace heddle::price
