#include "heddle/report/summary.h"

#include <nlohmann/json.hpp>

#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"
#include "heddle/report/stats.h"

namespace heddle {
namespace {

// The number of values in the text.
constexpr size_t kAliveInSummary = 5;

// Ranks that repeat the work of others do more than their share. Replicated sums over vocabularies
// cost a little; a batch that the ranks do not divide costs a lot.
std::string ComparedWithIdeal(const price::StepSummary& s) {
  if (s.whole_flops.value == 0 || s.ranks == 1) return "";
  double ideal = static_cast<double>(s.whole_flops.value) / static_cast<double>(s.ranks);
  double times = static_cast<double>(s.flops.value) / ideal;
  return fmt::format(", {:.2f} times its share of the whole step{}", times,
                     times > 1.5 ? "; ranks repeat work of others, see --remarks" : "");
}

}  // namespace

std::string FormatSummary(const price::StepSummary& s) {
  std::string out;
  auto line = [&](std::string_view what, const std::string& text) {
    out += fmt::format("{:<22} {}\n", what, text);
  };
  line("mesh", fmt::format("[{}], {}", Format(s.mesh), Counted(s.ranks, "rank")));
  line("parameters", WithCommas(s.parameters));
  line("each rank", "");
  line("  parameters", Format(s.param_bytes));
  line("  gradients", Format(s.grad_bytes));
  line("  optimizer state", Format(s.optimizer_bytes));
  line("  kept for backward", Format(s.activation_bytes));
  line("  peak of the step",
       fmt::format(
           "{}{} at {}{}",
           s.device_peak() != s.peak_bytes
               ? fmt::format("{} with Heddle's kernels; node by node ", Format(s.device_peak()))
               : "",
           Format(s.peak_bytes), s.peak_node.empty() ? "the start" : s.peak_node,
           s.has_optimizer ? ""
                           : fmt::format("; with optimizer state {}",
                                         Format(s.device_peak() + s.optimizer_bytes))));
  line("  work", Format(s.flops) + ComparedWithIdeal(s));
  line("  nodes", WithCommas(s.nodes));

  std::string comm = FormatCollectives(s.collectives, 0);
  if (!comm.empty()) out += "\n" + comm;
  std::string alive = FormatAlive(s.alive_at_peak, kAliveInSummary, 0);
  if (!alive.empty()) out += "\n" + alive;
  return out;
}

std::string FormatCoordinates(const std::vector<price::StepSummary>& coordinates) {
  TextTable table(
      {"coordinate>", "parameters>", "kept for backward>", "peak>", "work>", "nodes>", "sends>"});
  for (size_t at = 0; at < coordinates.size(); ++at) {
    const price::StepSummary& s = coordinates[at];
    int64_t sends = 0;
    for (const CollectiveStats& one : s.collectives) {
      if (one.kind == "send") sends += one.count;
    }
    table.AddRow({fmt::format("{}", at), Format(s.param_bytes), Format(s.activation_bytes),
                  Format(s.device_peak()), Format(s.flops), WithCommas(s.nodes),
                  WithCommas(sends)});
  }
  return table.Format();
}

nlohmann::ordered_json ToJson(const price::StepSummary& s) {
  auto mesh = nlohmann::ordered_json::object();
  for (const MeshAxis& axis : s.mesh.axes()) mesh[axis.name] = axis.size;
  return {{"parameters", s.parameters},
          {"ranks", s.ranks},
          {"mesh", mesh},
          {"param_bytes_per_rank", s.param_bytes.value},
          {"grad_bytes_per_rank", s.grad_bytes.value},
          {"optimizer_bytes_per_rank", s.optimizer_bytes.value},
          {"activation_bytes_per_rank", s.activation_bytes.value},
          {"peak_bytes", s.device_peak().value},
          {"value_peak_bytes", s.peak_bytes.value},
          {"peak_node", s.peak_node},
          {"flops_per_rank", s.flops.value},
          {"ideal_flops_per_rank", s.whole_flops.value / s.ranks},
          {"nodes", s.nodes},
          {"collectives", ToJson(s.collectives)}};
}

}  // namespace heddle
