// Measured times. They override the models where they have an entry.
//
// A JSON file (docs/cost.md) gives times of ops by operand types, of single nodes by name, and
// curves of collectives. A text table of AutoParallel's overlap simulator gives curves: `Group,
// Group Size, Collective, 1MB (ms), 2MB (ms), ...`.
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

// The time of calls with these operand types and attributes.
struct MeasuredOp {
  // `aten.mm`
  std::string op;
  // As in the text of a local graph, without spaces.
  std::vector<std::string> operands;
  // The attributes that must match, as in the text: `is_causal` and `true`. Others are ignored.
  std::vector<std::pair<std::string, std::string>> attrs;
  Nanos time;
};

// The contents of a file of measured times.
struct MeasuredCosts {
  // The file, for messages.
  std::string file;
  std::vector<MeasuredOp> ops;
  // By name of the node's first result, without `%`.
  std::map<std::string, Nanos, std::less<>> nodes;
  std::vector<Curve> curves;
  // Maps a result of a call with several results to the name of the call in the file.
  std::map<std::string, std::string, std::less<>> call_of_item;
  // The file has a time for every node of one graph. Its times are those of a graph without
  // buckets.
  bool whole_graph = false;
  // The rules for these times, if not Heddle's.
  std::optional<TimelineRules> rules;

  // The curve for a collective, or null. A curve that names the axes has priority; one that names
  // no axes of the mesh matches by number of ranks. Fails if several match.
  Result<const Curve*> FindCurve(CollectiveKind kind, const Mesh& mesh, const Axes& over,
                                 const GroupShape& group) const;
};

// Reads a file for `--costs` in any of the supported formats.
Result<MeasuredCosts> LoadCosts(const std::string& path);
// JSON if it begins with `{`, a table otherwise.
Result<MeasuredCosts> ParseCosts(std::string_view text, const std::string& file);

}  // namespace heddle::price
