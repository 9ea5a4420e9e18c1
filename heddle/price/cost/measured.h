// Measured times: they win over the models wherever they have an entry.
//
// A JSON file (docs/cost.md) gives times of ops by types of operands, of single nodes by name, and curves of collectives. A text
// table, as AutoParallel's overlap simulator writes them, gives curves: `Group, Group Size, Collective, 1MB (ms), 2MB (ms), ...`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/price/cost/comm/curve.h"
#include "heddle/price/cost/timeline_rules.h"

namespace heddle::price {

struct MeasuredOp {
  // `aten.mm`
  std::string op;
  // As a local graph prints them, without spaces.
  std::vector<std::string> operands;
  // These attributes, as a graph prints them: `is_causal` and `true`. Others do not matter.
  std::vector<std::pair<std::string, std::string>> attrs;
  Nanos time;
};

struct MeasuredCosts {
  // The file, for messages.
  std::string file;
  std::vector<MeasuredOp> ops;
  // By name of the node's first result, without `%`.
  std::map<std::string, Nanos, std::less<>> nodes;
  std::vector<Curve> curves;
  // By name of a result of a call with several results: the name that the file gives the call.
  std::map<std::string, std::string, std::less<>> call_of_item;
  // The file has a time for every node of one graph. Its times are those of a graph without
  // buckets.
  bool whole_graph = false;
  // The rules that the times are meant for, if not Heddle's.
  std::optional<TimelineRules> rules;

  // The curve for a collective, or null. One that names its axes comes first; one that names no axes of the mesh goes by the
  // number of ranks. An error if several do.
  Result<const Curve*> FindCurve(CollectiveKind kind, const Mesh& mesh, const Axes& over,
                                 const GroupShape& group) const;
};

Result<MeasuredCosts> LoadCosts(const std::string& path);
// JSON if it begins with `{`, a table otherwise.
Result<MeasuredCosts> ParseCosts(std::string_view text, const std::string& file);

}  // namespace heddle::price
