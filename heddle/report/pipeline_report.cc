#include "heddle/report/pipeline_report.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "heddle/core/base/clock.h"
#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

// The stages of a coordinate.
std::set<int32_t> StagesOf(const price::CoordinateTimes& coordinate) {
  std::set<int32_t> stages;
  for (const price::TimedAction& timed : coordinate.actions) stages.insert(timed.action.stage);
  return stages;
}

Nanos BubbleOf(const price::CoordinateTimes& coordinate, price::BubbleKind kind) {
  Nanos sum;
  for (const price::Bubble& bubble : coordinate.bubbles) {
    if (bubble.kind == kind) sum += bubble.end - bubble.begin - bubble.hop;
  }
  return sum;
}

double BubbleShare(Nanos part, Nanos whole) {
  return whole.value == 0 ? 0 : static_cast<double>(part.value) / static_cast<double>(whole.value);
}

}  // namespace

std::string FormatPipeline(const Module& module, std::span<const price::Simulation> simulations,
                           const price::PipelineSimulation& pipeline) {
  std::string out = fmt::format(
      "pipeline       {}{} on {}, {}\n", pipeline.schedule.empty() ? "" : pipeline.schedule + ", ",
      Counted(pipeline.stages, "stage"), Counted(simulations.size(), "coordinate"),
      pipeline.micro_batches == 1 ? "1 micro-batch"
                                  : fmt::format("{} micro-batches", pipeline.micro_batches));
  out += fmt::format("step            {:>9}, {:.1f} % above the bound {}\n", Format(pipeline.step),
                     100 * pipeline.gap(), Format(pipeline.bound));
  out += fmt::format("bubble          {:>9}, {:.1f} % of the step\n", Format(pipeline.bubble),
                     100 * BubbleShare(pipeline.bubble, pipeline.step));
  out += fmt::format("slowest         @{}, busy for {}\n\n", module.graphs[pipeline.slowest].name(),
                     Format(pipeline.coordinates[pipeline.slowest].busy));
  TextTable table({"coordinate>", "stages", "busy>", "bubble>", "fill>", "steady>", "drain>",
                   "hops>", "peak memory>", ""});
  for (size_t i = 0; i < pipeline.coordinates.size(); ++i) {
    const price::CoordinateTimes& c = pipeline.coordinates[i];
    table.AddRow({std::to_string(i), fmt::format("{}", fmt::join(StagesOf(c), " ")), Format(c.busy),
                  Format(c.bubble), Format(BubbleOf(c, price::BubbleKind::kFill)),
                  Format(BubbleOf(c, price::BubbleKind::kSteady)),
                  Format(BubbleOf(c, price::BubbleKind::kDrain)), Format(c.hop),
                  Format(simulations[i].peak),
                  simulations[i].peak > simulations[i].memory_cap ? "does not fit"
                  : i == pipeline.slowest                         ? "slowest"
                                                                  : ""});
  }
  return out + table.Format();
}

nlohmann::ordered_json ToJson(const Module& module, std::span<const price::Simulation> simulations,
                              const price::PipelineSimulation& pipeline) {
  using nlohmann::ordered_json;
  auto coordinates = ordered_json::array();
  for (size_t i = 0; i < pipeline.coordinates.size(); ++i) {
    const price::CoordinateTimes& c = pipeline.coordinates[i];
    auto by_kind = ordered_json::object();
    for (auto kind :
         {price::BubbleKind::kFill, price::BubbleKind::kSteady, price::BubbleKind::kDrain})
      by_kind[std::string(Name(kind))] = Millis(BubbleOf(c, kind));
    coordinates.push_back({{"graph", module.graphs[i].name()},
                           {"stages", StagesOf(c)},
                           {"busy_ms", Millis(c.busy)},
                           {"bubble_ms", Millis(c.bubble)},
                           {"bubbles_ms", by_kind},
                           {"hop_ms", Millis(c.hop)},
                           {"peak_bytes", simulations[i].peak.value}});
  }
  return {
      {"schedule", pipeline.schedule.empty() ? ordered_json() : ordered_json(pipeline.schedule)},
      {"stages", pipeline.stages},
      {"micro_batches", pipeline.micro_batches},
      {"bubble_ms", Millis(pipeline.bubble)},
      {"bound_ms", Millis(pipeline.bound)},
      {"gap", pipeline.gap()},
      {"slowest", pipeline.slowest},
      {"coordinates", coordinates}};
}

std::string FormatPipelineData(const price::PipelineSimulation& pipeline) {
  using nlohmann::ordered_json;
  ordered_json rows = ordered_json::array();
  for (const price::CoordinateTimes& c : pipeline.coordinates) {
    ordered_json actions = ordered_json::array();
    for (const price::TimedAction& timed : c.actions) {
      actions.push_back({Token(timed.action), timed.action.stage, timed.action.micro_batch,
                         timed.action.work == PipelineWork::kForward, timed.begin.value,
                         timed.end.value});
    }
    ordered_json bubbles = ordered_json::array();
    for (const price::Bubble& b : c.bubbles)
      bubbles.push_back({Name(b.kind), b.begin.value, b.end.value, b.hop.value, b.tag, b.other});
    rows.push_back({{"actions", actions}, {"bubbles", bubbles}, {"busy", c.busy.value}});
  }
  return ordered_json{{"schedule", pipeline.schedule},
                      {"stages", pipeline.stages},
                      {"micro_batches", pipeline.micro_batches},
                      {"step", pipeline.step.value},
                      {"bound", pipeline.bound.value},
                      {"bubble", pipeline.bubble.value},
                      {"slowest", pipeline.slowest},
                      {"rows", rows}}
      .dump();
}

}  // namespace heddle
