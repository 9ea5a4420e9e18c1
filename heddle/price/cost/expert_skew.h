// How rows divide among experts, for estimates: the rank with the most of them decides.
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
  // Measured rows of each expert, by layer; of all layers alike where the layer has no name.
  std::map<std::string, std::vector<double>> counts = {};
};

// `uniform`, `zipf:1.2`, or a file with a number for each expert: numbers with space between them, a JSON list, a JSON object that has a
// list for each layer, or the metrics that training wrote, whose last line with tokens of experts counts.
Result<ExpertSkew> ParseExpertSkew(std::string_view text);

// How many times its even share the rank with the most rows gets, of the experts in `scope`. Fails where nothing is known of them, or
// where their number is another.
Result<double> LargestShare(const ExpertSkew& skew, std::string_view scope, int64_t experts,
                            int64_t ranks);

// The graph with as many rows where their number is a symbol, as experts of the most loaded rank get; none if it has no such rows.
Result<std::optional<Graph>> WithExpectedRows(const Mesh& mesh, const Graph& graph,
                                              const ExpertSkew& skew);

}  // namespace heddle::price
