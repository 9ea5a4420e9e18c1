// heddle schedule: shows pipeline schedules, their times and lower bounds.
#include <charconv>
#include <cmath>
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/cli/commands.h"
#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"
#include "heddle/report/pipeline_picture.h"

namespace heddle {
namespace {

constexpr int64_t kMostRanks = 4096;
constexpr double kMostUnits = 1e4;

struct ScheduleCommand {
  static constexpr const char* kName = "schedule";
  static constexpr const char* kSummary =
      "Show pipeline schedules: order, bubbles, activations and lower bounds";
  static constexpr const char* kNote =
      "Without NAME, compares all schedules. Costs are for one micro-batch, in any unit of time: a "
      "number for all stages of a rank together, or one number per stage. docs/pipeline.md "
      "explains "
      "the output.";
  static constexpr const char* kExamples =
      "heddle schedule --ranks=4 --micro-batches=8\n"
      "heddle schedule ZBV --ranks=4 --micro-batches=8 --svg=zbv.svg\n"
      "heddle schedule 1F1B --ranks=8 --forward=1 --input-gradient=1.4 --weight-gradient=0.7\n"
      "heddle schedule pytorch.csv --json";

  std::string name;
  int64_t ranks = 4;
  std::optional<int64_t> stages;
  int64_t micro_batches = 8;
  std::string forward = "1";
  std::string input_gradient = "1";
  std::string weight_gradient = "1";
  double hop = 0;
  std::string svg;
  bool csv = false;
  bool json = false;

  void Declare(Flags& flags);
  Status Run(const Streams& streams) const;

 private:
  Result<std::vector<PipelineSchedule>> Load(const Streams& streams) const;
  Result<std::vector<PipelineSchedule>> LoadFile(const Streams& streams) const;
  PipelineShape ShapeOf(const ScheduleFamily& family) const;
  Result<price::PipelineCosts> Costs(const PipelineSchedule& schedule) const;
  Status WriteOutputs(const std::vector<TimedSchedule>& timed, const Streams& streams) const;
};

bool IsScheduleFile(std::string_view name) {
  return name == "-" || name.ends_with(".csv") || name.find('/') != name.npos;
}

void ScheduleCommand::Declare(Flags& flags) {
  std::vector<std::string_view> names;
  for (const ScheduleFamily& family : ScheduleFamilies()) names.push_back(family.name);
  flags.Positional(
      "NAME", name,
      fmt::format("{}, in any case; ZBV is ZBVZeroBubble; or a CSV file of PyTorch, or - for "
                  "standard input",
                  Join(names, ", ")),
      {}, false);
  flags.Option("--ranks", ranks, "ranks of the pipeline", {1, kMostRanks});
  flags.Option("--stages", stages,
               "stages of the model (default: 1 per rank, or 2 where a rank may have several)",
               {1, kMostStageMicroBatches});
  flags.Option("--micro-batches", micro_batches, "micro-batches per step",
               {1, kMostStageMicroBatches});
  flags.Section("Costs");
  flags.Option("--forward=TIMES", forward, "forward of a rank, or of each stage, as in 1,1,1,1.5");
  flags.Option("--input-gradient=TIMES", input_gradient, "backward for inputs, likewise");
  flags.Option("--weight-gradient=TIMES", weight_gradient, "backward for weights, likewise");
  flags.Option("--hop", hop, "transfer between ranks");
  flags.Section("Output");
  flags.Switch("--csv", csv, "print the schedule as PyTorch reads it (format compute_only)");
  flags.Option("--svg=FILE", svg, "draw the schedules, or - for standard output");
  flags.Switch("--json", json,
               "print JSON: schedules with time, bound, gap, bubble, and the actions of each rank");
}

PipelineShape ScheduleCommand::ShapeOf(const ScheduleFamily& family) const {
  int64_t usual = family.stages == StagesPerRank::kOne ? ranks : 2 * ranks;
  return {ranks, stages.value_or(usual), micro_batches};
}

Result<std::vector<PipelineSchedule>> ScheduleCommand::LoadFile(const Streams& streams) const {
  HEDDLE_TRY(std::string text, ReadInput(name, streams));
  HEDDLE_TRY(ParsedSchedule parsed, ParseSchedule(text, InputName(name)));
  if (parsed.communication > 0)
    PrintNotes(std::vector{fmt::format("{} of communication left out; Heddle places its own",
                                       Counted(parsed.communication, "action"))},
               streams);
  return std::vector{std::move(parsed.schedule)};
}

Result<std::vector<PipelineSchedule>> ScheduleCommand::Load(const Streams& streams) const {
  if (IsScheduleFile(name)) return LoadFile(streams);
  std::vector<PipelineSchedule> out;
  if (!name.empty()) {
    const ScheduleFamily* family = FindScheduleFamily(name);
    std::vector<std::string_view> names;
    for (const ScheduleFamily& each : ScheduleFamilies()) names.push_back(each.name);
    if (family == nullptr)
      return Error(Diag::kBadChoice, "no schedule is called `{}`{}; they are {}", name,
                   NearestHint(name, names), Join(names, ", "));
    HEDDLE_TRY(PipelineSchedule schedule, MakeSchedule(*family, ShapeOf(*family)));
    out.push_back(std::move(schedule));
    return out;
  }
  std::vector<std::string> notes;
  for (const ScheduleFamily& family : ScheduleFamilies()) {
    Result<PipelineSchedule> schedule = MakeSchedule(family, ShapeOf(family));
    if (schedule.ok())
      out.push_back(*std::move(schedule));
    else
      notes.push_back(schedule.diagnostics().front().message);
  }
  if (out.empty()) return Error(Diag::kSchedule, "{}", notes.front());
  PrintNotes(notes, streams);
  return out;
}

Nanos FromUnits(double units) { return {std::llround(units * double{kNanosPerUnit})}; }

// The time of each stage. `text` is a number for all stages of a rank, or a list with one for each
// stage.
Result<std::vector<Nanos>> ReadTimes(std::string_view flag, std::string_view text,
                                     const PipelineSchedule& schedule) {
  std::vector<double> numbers;
  for (std::string_view part : Split(text, ',')) {
    double& number = numbers.emplace_back();
    auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc() || end != part.data() + part.size() ||
        !(number >= 0 && number <= kMostUnits))
      return Error(Diag::kBadLiteral, "{} is `{}`; write numbers from 0 to {:.0f}, as in `1,1.5`",
                   flag, text, kMostUnits);
  }
  auto stages = static_cast<size_t>(schedule.stages);
  if (numbers.size() == 1)
    numbers.assign(stages, numbers[0] * static_cast<double>(schedule.ranks.size()) /
                               static_cast<double>(stages));
  if (numbers.size() != stages)
    return Error(Diag::kUsage, "{} has {}, and the schedule has {}", flag,
                 Counted(numbers.size(), "number"), Counted(stages, "stage"));
  std::vector<Nanos> times;
  for (double number : numbers) times.push_back(FromUnits(number));
  return times;
}

Result<price::PipelineCosts> ScheduleCommand::Costs(const PipelineSchedule& schedule) const {
  HEDDLE_TRY(std::vector<Nanos> f, ReadTimes("--forward", forward, schedule));
  HEDDLE_TRY(std::vector<Nanos> i, ReadTimes("--input-gradient", input_gradient, schedule));
  HEDDLE_TRY(std::vector<Nanos> w, ReadTimes("--weight-gradient", weight_gradient, schedule));
  if (!(hop <= kMostUnits))
    return Error(Diag::kBadLiteral, "--hop is {}; write a number up to {:.0f}", hop, kMostUnits);
  price::PipelineCosts costs{{}, FromUnits(hop)};
  for (size_t stage = 0; stage < f.size(); ++stage)
    costs.stages.push_back({f[stage], i[stage], w[stage]});
  return costs;
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

nlohmann::ordered_json ToJson(const TimedSchedule& timed) {
  auto ranks = nlohmann::ordered_json::array();
  for (size_t rank = 0; rank < timed.schedule.ranks.size(); ++rank)
    ranks.push_back(RankToJson(timed, rank));
  return {{"schedule", timed.schedule.name},
          {"stages", timed.schedule.stages},
          {"micro_batches", timed.schedule.micro_batches},
          {"time", Units(timed.times.step)},
          {"bound", Units(timed.bounds.within_memory)},
          {"bound_any_memory", Units(timed.bounds.any)},
          {"gap", timed.gap()},
          {"bubble", timed.times.bubble()},
          {"activations", timed.most_in_flight()},
          {"messages", timed.times.messages},
          {"ranks", ranks}};
}

std::string CountedMicroBatches(int64_t count) {
  return fmt::format("{} micro-batch{}", count, count == 1 ? "" : "es");
}

std::string Percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string FormatComparison(const std::vector<TimedSchedule>& schedules) {
  TextTable table(
      {"schedule", "stages>", "time>", "bubble>", "activations>", "messages>", "bound>", "gap>"});
  for (const TimedSchedule& timed : schedules)
    table.AddRow({timed.schedule.name, fmt::format("{}", timed.schedule.stages),
                  FormatUnits(timed.times.step), Percent(timed.times.bubble()),
                  fmt::format("{:g}", timed.most_in_flight()),
                  fmt::format("{}", timed.times.messages), FormatUnits(timed.bounds.within_memory),
                  Percent(timed.gap())});
  return table.Format(2);
}

std::string FormatOne(const TimedSchedule& timed, size_t width) {
  const PipelineSchedule& schedule = timed.schedule;
  std::string out = fmt::format(
      "{}: {} on {}, {}\n\n", schedule.name, Counted(schedule.stages, "stage"),
      Counted(schedule.ranks.size(), "rank"), CountedMicroBatches(schedule.micro_batches));
  out += FormatPicture(timed, width) + "\n";
  TextTable table({"rank>", "busy>", "idle>", "bubble>", "activations>"});
  double share = static_cast<double>(schedule.ranks.size()) / static_cast<double>(schedule.stages);
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const price::RankTimes& times = timed.times.ranks[rank];
    Nanos idle = timed.times.step - times.busy;
    double bubble = timed.times.step.value == 0 ? 0 : Units(idle) / Units(timed.times.step);
    table.AddRow({fmt::format("{}", rank), FormatUnits(times.busy), FormatUnits(idle),
                  Percent(bubble),
                  fmt::format("{:g}", static_cast<double>(times.most_in_flight) * share)});
  }
  out += table.Format(2);
  out += fmt::format("\ntime      {}, bubble {}\n", FormatUnits(timed.times.step),
                     Percent(timed.times.bubble()));
  out += fmt::format("bound     {} with these activations, gap {}; {} with any number\n",
                     FormatUnits(timed.bounds.within_memory), Percent(timed.gap()),
                     FormatUnits(timed.bounds.any));
  return out + fmt::format("messages  {}\n", timed.times.messages);
}

Status ScheduleCommand::WriteOutputs(const std::vector<TimedSchedule>& timed,
                                     const Streams& streams) const {
  if (!svg.empty()) {
    int64_t actions = 0;
    for (const TimedSchedule& each : timed)
      for (const price::RankTimes& rank : each.times.ranks)
        actions += static_cast<int64_t>(rank.end.size());
    if (actions > kMostDrawnActions)
      return Error(Diag::kUsage, "--svg would draw {} actions; at most {}", WithCommas(actions),
                   WithCommas(kMostDrawnActions));
    HEDDLE_RETURN_IF_ERROR(WriteOutput(svg, FormatPipelineSvg(timed), streams));
    if (svg == "-") return Done{};
  }
  if (csv) {
    streams.out << FormatCsv(timed[0].schedule);
  } else if (json) {
    auto all = nlohmann::ordered_json::array();
    for (const TimedSchedule& each : timed) all.push_back(ToJson(each));
    PrintJson({{"schedules", all}}, streams);
  } else {
    streams.out << (name.empty() ? FormatComparison(timed) : FormatOne(timed[0], streams.width));
  }
  return Done{};
}

Status ScheduleCommand::Run(const Streams& streams) const {
  if (csv && name.empty()) return Error(Diag::kUsage, "--csv prints one schedule; give a NAME");
  HEDDLE_RETURN_IF_ERROR(CheckOneOutput({{"--csv", csv}, {"--json", json}, {"--svg", svg == "-"}}));
  HEDDLE_TRY(std::vector<PipelineSchedule> schedules, Load(streams));
  std::vector<TimedSchedule> timed;
  for (PipelineSchedule& schedule : schedules) {
    HEDDLE_TRY(price::PipelineCosts costs, Costs(schedule));
    timed.push_back(TimeSchedule(std::move(schedule), costs));
  }
  const PipelineSchedule& first = timed[0].schedule;
  if (auto ranks_there = static_cast<int64_t>(first.ranks.size());
      first.micro_batches < ranks_there)
    PrintNotes(std::vector{fmt::format("{} for {}; most ranks are idle",
                                       CountedMicroBatches(first.micro_batches),
                                       Counted(ranks_there, "rank"))},
               streams);
  return WriteOutputs(timed, streams);
}

}  // namespace

void AddSchedule(CommandSet& commands) { commands.Add<ScheduleCommand>(); }

}  // namespace heddle
