#include "heddle/report/stats.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

// The number of values in the text; JSON has all.
constexpr size_t kAliveInStats = 10;

}  // namespace

std::string FormatCollectives(const std::vector<CollectiveStats>& collectives, size_t indent) {
  // Show padding only if there is any.
  bool padded = std::ranges::any_of(
      collectives, [](const CollectiveStats& c) { return c.wire_bytes != c.bytes; });
  std::vector<std::string> columns{"phase",     "collective", "over",  "why",
                                   "launches>", "tensors>",   "bytes>"};
  if (padded) columns.push_back("with padding>");
  TextTable table(std::move(columns));
  for (const CollectiveStats& c : collectives) {
    std::vector<std::string> row{
        c.phase,        c.kind, c.over, c.why, WithCommas(c.count), WithCommas(c.operands),
        Format(c.bytes)};
    if (padded) row.push_back(Format(c.wire_bytes));
    table.AddRow(std::move(row));
  }
  return table.empty() ? "" : table.Format(indent);
}

std::string FormatAlive(const std::vector<AliveStats>& alive, size_t most, size_t indent) {
  TextTable table({"alive at the peak", "type", "bytes>"});
  for (size_t i = 0; i < std::min(most, alive.size()); ++i)
    table.AddRow({alive[i].value, alive[i].type, Format(alive[i].bytes)});
  return table.empty() ? "" : table.Format(indent);
}

std::string FormatStats(const GraphStats& stats) {
  std::string out = fmt::format("graph @{}\n  nodes       {}", stats.name, WithCommas(stats.nodes));
  const char* open = " (";
  for (const auto& [phase, count] : stats.nodes_by_phase) {
    out += fmt::format("{}{} {}", open, WithCommas(count), phase);
    open = ", ";
  }
  out += stats.nodes_by_phase.empty() ? "\n" : ")\n";
  out += fmt::format("  parameters  {} in {}\n", WithCommas(stats.parameters),
                     Counted(stats.parameter_tensors, "tensor"));
  out += fmt::format("  peak memory {} at {}\n", Format(stats.peak_bytes),
                     stats.peak_node.empty() ? "the start" : stats.peak_node);

  std::vector<std::pair<std::string, int64_t>> ops(stats.ops.begin(), stats.ops.end());
  std::ranges::stable_sort(ops, [](const auto& a, const auto& b) { return a.second > b.second; });
  TextTable op_table({"op", "nodes>"});
  for (const auto& [name, count] : ops) op_table.AddRow({name, WithCommas(count)});
  if (!op_table.empty()) out += "\n" + op_table.Format(2);

  std::string comm = FormatCollectives(stats.collectives, 2);
  if (!comm.empty()) out += "\n" + comm;
  std::string alive = FormatAlive(stats.alive_at_peak, kAliveInStats, 2);
  if (!alive.empty()) out += "\n" + alive;
  if (stats.alive_at_peak.size() > kAliveInStats)
    out +=
        fmt::format("  and {} more\n",
                    WithCommas(static_cast<int64_t>(stats.alive_at_peak.size() - kAliveInStats)));
  return out;
}

nlohmann::ordered_json ToJson(const std::vector<CollectiveStats>& collectives) {
  auto list = nlohmann::ordered_json::array();
  for (const CollectiveStats& c : collectives) {
    list.push_back({{"kind", c.kind},
                    {"over", c.over},
                    {"why", c.why},
                    {"phase", c.phase},
                    {"count", c.count},
                    {"operands", c.operands},
                    {"bytes", c.bytes.value},
                    {"wire_bytes", c.wire_bytes.value}});
  }
  return list;
}

nlohmann::ordered_json ToJson(const GraphStats& stats) {
  auto alive = nlohmann::ordered_json::array();
  for (const AliveStats& a : stats.alive_at_peak)
    alive.push_back({{"value", a.value}, {"type", a.type}, {"bytes", a.bytes.value}});
  auto phases = nlohmann::ordered_json::object();
  for (const auto& [phase, count] : stats.nodes_by_phase) phases[phase] = count;
  return {{"graph", stats.name},
          {"nodes", stats.nodes},
          {"nodes_by_phase", phases},
          {"parameters", stats.parameters},
          {"parameter_tensors", stats.parameter_tensors},
          {"input_bytes", stats.input_bytes.value},
          {"end_bytes", stats.end_bytes.value},
          {"peak_bytes", stats.peak_bytes.value},
          {"peak_node", stats.peak_node},
          {"alive_at_peak", alive},
          {"ops", stats.ops},
          {"opaque", stats.opaque},
          {"collectives", ToJson(stats.collectives)}};
}

}  // namespace heddle
