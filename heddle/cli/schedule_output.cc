#include "heddle/cli/schedule_output.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string TimeText(const ShownSchedule& shown, Nanos time) {
  return shown.of_step() ? Format(Nanos{time.value / kNanosPerUnitOfStep}) : FormatUnits(time);
}

// The positions of a stage: `embedding, layers 0-7`.
std::string PositionsText(const ShownSchedule& shown, size_t stage) {
  int64_t begin = shown.first_positions[stage];
  bool last = stage + 1 == shown.first_positions.size();
  int64_t end = last ? shown.positions : shown.first_positions[stage + 1];
  std::vector<std::string> parts;
  if (begin == 0) parts.emplace_back("embedding");
  int64_t first_layer = std::max<int64_t>(begin, 1) - 1;
  int64_t last_layer = std::min(end, shown.positions - 1) - 2;
  if (first_layer == last_layer) parts.push_back(fmt::format("layer {}", first_layer));
  if (first_layer < last_layer)
    parts.push_back(fmt::format("layers {}-{}", first_layer, last_layer));
  if (last) parts.emplace_back("output");
  std::vector<std::string_view> views(parts.begin(), parts.end());
  return Join(views, ", ");
}

nlohmann::ordered_json RankToJson(const TimedSchedule& timed, size_t rank) {
  const price::RankTimes& times = timed.times.ranks[rank];
  nlohmann::ordered_json actions = nlohmann::ordered_json::array();
  const std::vector<PipelineAction>& planned = timed.schedule.ranks[rank];
  for (size_t i = 0; i < planned.size(); ++i)
    actions.push_back({Token(planned[i]), Units(times.begin[i]), Units(times.end[i])});
  nlohmann::ordered_json stages = nlohmann::ordered_json::array();
  std::vector<int32_t> rank_of_stage = RanksOfStages(timed.schedule);
  for (size_t stage = 0; stage < rank_of_stage.size(); ++stage)
    if (rank_of_stage[stage] == static_cast<int32_t>(rank)) stages.push_back(stage);
  return {{"rank", rank},
          {"stages", stages},
          {"busy", Units(times.busy)},
          {"idle", Units(timed.times.step - times.busy)},
          {"most_in_flight", times.most_in_flight},
          {"actions", actions}};
}

nlohmann::ordered_json StageToJson(const ShownSchedule& shown, size_t stage) {
  const price::StageCost& cost = shown.costs.stages[stage];
  return {{"layers", PositionsText(shown, stage)},
          {"forward_ms", Units(cost.forward)},
          {"input_gradient_ms", Units(cost.input_gradient)},
          {"weight_gradient_ms", Units(cost.weight_gradient)},
          {"activation_bytes", cost.activations.value}};
}

std::string FormatStages(const ShownSchedule& shown) {
  TextTable table({"stage>", "rank>", "layers", "forward>", "input gradient>", "weight gradient>",
                   "activations>"});
  std::vector<int32_t> ranks = RanksOfStages(shown.timed.schedule);
  for (size_t stage = 0; stage < ranks.size(); ++stage) {
    const price::StageCost& cost = shown.costs.stages[stage];
    table.AddRow({fmt::format("{}", stage), fmt::format("{}", ranks[stage]),
                  PositionsText(shown, stage), TimeText(shown, cost.forward),
                  TimeText(shown, cost.input_gradient), TimeText(shown, cost.weight_gradient),
                  Format(cost.activations)});
  }
  return table.Format(2) +
         fmt::format("  a transfer takes {}\n\n", TimeText(shown, shown.costs.hop));
}

}  // namespace

Bytes MostActivations(const ShownSchedule& shown) {
  Bytes most;
  for (const price::RankTimes& rank : shown.timed.times.ranks)
    most = std::max(most, rank.most_activations);
  return most;
}

std::string CountedMicroBatches(int64_t count) {
  return fmt::format("{} micro-batch{}", count, count == 1 ? "" : "es");
}

nlohmann::ordered_json ToJson(const ShownSchedule& shown) {
  const TimedSchedule& timed = shown.timed;
  nlohmann::ordered_json out = {{"schedule", timed.schedule.name},
                                {"stages", timed.schedule.stages},
                                {"micro_batches", timed.schedule.micro_batches},
                                {"time", Units(timed.times.step)},
                                {"bound", Units(timed.bounds.within_memory)},
                                {"bound_any_memory", Units(timed.bounds.any)},
                                {"gap", timed.gap()},
                                {"bubble", timed.times.bubble()},
                                {"activations", timed.most_in_flight()},
                                {"messages", timed.times.messages}};
  if (shown.of_step()) {
    out["activation_bytes"] = MostActivations(shown).value;
    out["hop_ms"] = Units(shown.costs.hop);
    auto stages = nlohmann::ordered_json::array();
    for (size_t stage = 0; stage < shown.costs.stages.size(); ++stage)
      stages.push_back(StageToJson(shown, stage));
    out["stage_costs"] = stages;
  }
  auto ranks = nlohmann::ordered_json::array();
  for (size_t rank = 0; rank < timed.schedule.ranks.size(); ++rank)
    ranks.push_back(RankToJson(timed, rank));
  out["ranks"] = ranks;
  return out;
}

std::string FormatComparison(const std::vector<ShownSchedule>& schedules) {
  bool of_step = schedules[0].of_step();
  std::vector<std::string> columns{"schedule",     "stages>",   "time>",  "bubble>",
                                   "activations>", "messages>", "bound>", "gap>"};
  if (of_step) columns.insert(columns.begin() + 5, "memory>");
  TextTable table(columns);
  for (const ShownSchedule& shown : schedules) {
    const TimedSchedule& timed = shown.timed;
    std::vector<std::string> row{timed.schedule.name,
                                 fmt::format("{}", timed.schedule.stages),
                                 TimeText(shown, timed.times.step),
                                 Percent(timed.times.bubble()),
                                 fmt::format("{:g}", timed.most_in_flight()),
                                 fmt::format("{}", timed.times.messages),
                                 TimeText(shown, timed.bounds.within_memory),
                                 Percent(timed.gap())};
    if (of_step) row.insert(row.begin() + 5, Format(MostActivations(shown)));
    table.AddRow(row);
  }
  return table.Format(2);
}

std::string FormatOne(const ShownSchedule& shown, size_t width) {
  const TimedSchedule& timed = shown.timed;
  const PipelineSchedule& schedule = timed.schedule;
  std::string out = fmt::format(
      "{}: {} on {}, {}\n\n", schedule.name, Counted(schedule.stages, "stage"),
      Counted(schedule.ranks.size(), "rank"), CountedMicroBatches(schedule.micro_batches));
  if (shown.of_step()) out += FormatStages(shown);
  out += FormatPicture(timed, width) + "\n";
  TextTable table({"rank>", "busy>", "idle>", "bubble>", "activations>"});
  double share = static_cast<double>(schedule.ranks.size()) / static_cast<double>(schedule.stages);
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const price::RankTimes& times = timed.times.ranks[rank];
    Nanos idle = timed.times.step - times.busy;
    double bubble = timed.times.step.value == 0 ? 0 : Units(idle) / Units(timed.times.step);
    std::string in_flight = fmt::format("{:g}", static_cast<double>(times.most_in_flight) * share);
    table.AddRow({fmt::format("{}", rank), TimeText(shown, times.busy), TimeText(shown, idle),
                  Percent(bubble), shown.of_step() ? Format(times.most_activations) : in_flight});
  }
  out += table.Format(2);
  out += fmt::format("\ntime      {}, bubble {}\n", TimeText(shown, timed.times.step),
                     Percent(timed.times.bubble()));
  out += fmt::format("bound     {} with these activations, gap {}; {} with any number\n",
                     TimeText(shown, timed.bounds.within_memory), Percent(timed.gap()),
                     TimeText(shown, timed.bounds.any));
  return out + fmt::format("messages  {}\n", timed.times.messages);
}

}  // namespace heddle
