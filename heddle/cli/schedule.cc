// heddle schedule: shows pipeline schedules, their times and lower bounds.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <ostream>

#include <strings.h>
#include <nlohmann/json.hpp>

#include "heddle/cli/commands.h"
#include "heddle/cli/schedule_output.h"
#include "heddle/cli/step/sim_flags.h"
#include "heddle/core/base/text.h"
#include "heddle/price/pipeline/step_costs.h"

namespace heddle {
namespace {

constexpr int64_t kMostRanks = 4096;
constexpr double kMostUnits = 1e4;
// `auto` tries up to this many stages per rank.
constexpr int64_t kMostChunks = 4;

struct ScheduleCommand {
  static constexpr const char* kName = "schedule";
  static constexpr const char* kSummary =
      "Show pipeline schedules: order, bubbles, activations and lower bounds";
  static constexpr const char* kNote =
      "Without NAME, compares all schedules. Costs are for one micro-batch, in any unit of time: a "
      "number for all stages of a rank together, or one number per stage. With --step, a "
      "simulation "
      "finds them. docs/pipeline.md explains the output.";
  static constexpr const char* kExamples =
      "heddle schedule --ranks=4 --micro-batches=8\n"
      "heddle schedule ZBV --ranks=4 --micro-batches=8 --svg=zbv.svg\n"
      "heddle schedule 1F1B --ranks=8 --forward=1 --input-gradient=1.4 --weight-gradient=0.7\n"
      "heddle schedule pytorch.csv --json\n"
      "heddle schedule auto --step=local.hd --ranks=8 --micro-batches=16 --memory=40GiB";

  std::string name;
  int64_t ranks = 4;
  std::optional<int64_t> stages;
  int64_t micro_batches = 8;
  std::string forward = "1";
  std::string input_gradient = "1";
  std::string weight_gradient = "1";
  double hop = 0;
  std::string step;
  price::PriceOptions prices;
  std::string memory;
  std::string svg;
  bool csv = false;
  bool json = false;

  void Declare(Flags& flags);
  Status Run(const Streams& streams) const;

 private:
  Result<std::vector<PipelineSchedule>> Load(const Streams& streams) const;
  Result<std::vector<PipelineSchedule>> LoadFile(const Streams& streams) const;
  Result<std::vector<PipelineSchedule>> MakeAll(const Streams& streams) const;
  bool is_auto() const { return ::strcasecmp(name.c_str(), "auto") == 0; }
  PipelineShape ShapeOf(const ScheduleFamily& family) const;
  Result<price::PipelineCosts> Costs(const PipelineSchedule& schedule) const;
  Result<std::vector<ShownSchedule>> Show(std::vector<PipelineSchedule> schedules,
                                          const Streams& streams) const;
  Result<std::vector<ShownSchedule>> ShowStep(std::vector<PipelineSchedule> schedules,
                                              const Streams& streams) const;
  Status LeaveOut(std::vector<ShownSchedule>& shown) const;
  Status WriteOutputs(const std::vector<ShownSchedule>& shown, const Streams& streams) const;
};

bool IsScheduleFile(std::string_view name) {
  return name == "-" || name.ends_with(".csv") || name.find('/') != name.npos;
}

void ScheduleCommand::Declare(Flags& flags) {
  std::vector<std::string_view> names;
  for (const ScheduleFamily& family : ScheduleFamilies()) names.push_back(family.name);
  flags.Positional(
      "NAME", name,
      fmt::format(
          "{}, in any case; ZBV is ZBVZeroBubble; auto: the fastest of all; or a CSV file of "
          "PyTorch, or - for standard input",
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
  flags.Section("Costs of a model");
  flags.Option(
      "--step=FILE", step,
      "graph of one rank for one micro-batch, without a pipeline, or - for standard input: "
      "its layers are divided among stages, and times are in milliseconds");
  DeclarePrices(flags, prices, "cluster to simulate --step on");
  flags.Excludes("--step", "Costs", "--step simulates costs");
  flags.Option("--memory=SIZE", memory,
               "leave out schedules whose activations need more on a rank, as in 40GiB");
  flags.Requires("--memory", "--step");
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
  if (!name.empty() && !is_auto()) {
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
  return MakeAll(streams);
}

// With `auto`, also several numbers of stages per rank, and no notes about what is impossible.
Result<std::vector<PipelineSchedule>> ScheduleCommand::MakeAll(const Streams& streams) const {
  std::vector<PipelineSchedule> out;
  std::vector<std::string> notes;
  for (const ScheduleFamily& family : ScheduleFamilies()) {
    std::vector<PipelineShape> shapes{ShapeOf(family)};
    if (is_auto() && !stages && family.stages == StagesPerRank::kAny)
      for (int64_t chunks = 3; chunks <= kMostChunks; ++chunks)
        shapes.push_back({ranks, chunks * ranks, micro_batches});
    for (const PipelineShape& shape : shapes) {
      Result<PipelineSchedule> schedule = MakeSchedule(family, shape);
      if (schedule.ok())
        out.push_back(*std::move(schedule));
      else
        notes.push_back(schedule.diagnostics().front().message);
    }
  }
  if (out.empty()) return Error(Diag::kSchedule, "{}", notes.front());
  if (!is_auto()) PrintNotes(notes, streams);
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

Result<std::vector<ShownSchedule>> ScheduleCommand::Show(std::vector<PipelineSchedule> schedules,
                                                         const Streams& streams) const {
  if (!step.empty()) return ShowStep(std::move(schedules), streams);
  std::vector<ShownSchedule> out;
  for (PipelineSchedule& schedule : schedules) {
    HEDDLE_TRY(price::PipelineCosts costs, Costs(schedule));
    out.push_back({TimeSchedule(std::move(schedule), costs), costs});
  }
  return out;
}

// With milliseconds as units.
price::PipelineCosts InUnits(price::PipelineCosts costs) {
  auto convert = [](Nanos& time) { time = time * kNanosPerUnitOfStep; };
  for (price::StageCost& cost : costs.stages) {
    convert(cost.forward);
    convert(cost.input_gradient);
    convert(cost.weight_gradient);
  }
  convert(costs.hop);
  return costs;
}

Result<std::vector<ShownSchedule>> ScheduleCommand::ShowStep(
    std::vector<PipelineSchedule> schedules, const Streams& streams) const {
  HEDDLE_TRY(price::CostModel model, prices.Load());
  HEDDLE_TRY(Module module, LoadModule(step, streams));
  if (module.graphs.size() != 1)
    return Error(Diag::kSchedule, "--step has {} graphs, expected one with forward and backward",
                 module.graphs.size());
  HEDDLE_TRY(price::StepCosts costs, price::FindStepCosts(module, module.graphs[0], model));
  std::vector<ShownSchedule> out;
  std::vector<std::string> notes;
  for (PipelineSchedule& schedule : schedules) {
    if (schedule.stages > costs.most_stages()) {
      notes.push_back(fmt::format("{} needs {} stages; {} and embedding and output are too few",
                                  schedule.name, schedule.stages,
                                  Counted(costs.most_stages() - 2, "layer")));
      continue;
    }
    std::vector<int64_t> firsts = price::BalanceStages(costs, schedule.stages);
    price::PipelineCosts of_stages = InUnits(price::StageCostsOf(costs, firsts, model.cluster()));
    out.push_back({TimeSchedule(std::move(schedule), of_stages), of_stages, std::move(firsts),
                   costs.most_stages()});
  }
  if (out.empty()) return Error(Diag::kSchedule, "{}", notes.front());
  if (!is_auto()) PrintNotes(notes, streams);
  return out;
}

// Applies --memory, and chooses for `auto`.
Status ScheduleCommand::LeaveOut(std::vector<ShownSchedule>& shown) const {
  if (!memory.empty()) {
    HEDDLE_TRY(Bytes limit, ParseBytes(memory));
    auto least = std::ranges::min_element(shown, {}, MostActivations);
    if (MostActivations(*least) > limit)
      return Error(Diag::kInfeasible, "no schedule's activations fit into {}; {} needs {}",
                   Format(limit), least->timed.schedule.name, Format(MostActivations(*least)));
    std::erase_if(shown, [&](const ShownSchedule& each) { return MostActivations(each) > limit; });
  }
  if (!is_auto()) return Done{};
  // Among equals, the one with the fewest activations.
  auto best = std::ranges::min_element(shown, {}, [](const ShownSchedule& each) {
    return std::pair(each.timed.times.step, each.timed.most_in_flight());
  });
  shown = std::vector{ShownSchedule(*best)};
  return Done{};
}

Status ScheduleCommand::WriteOutputs(const std::vector<ShownSchedule>& shown,
                                     const Streams& streams) const {
  if (!svg.empty()) {
    std::vector<TimedSchedule> drawn;
    int64_t actions = 0;
    for (const ShownSchedule& each : shown) {
      drawn.push_back(each.timed);
      for (const price::RankTimes& rank : each.timed.times.ranks)
        actions += static_cast<int64_t>(rank.end.size());
    }
    if (actions > kMostDrawnActions)
      return Error(Diag::kUsage, "--svg would draw {} actions; at most {}", WithCommas(actions),
                   WithCommas(kMostDrawnActions));
    HEDDLE_RETURN_IF_ERROR(WriteOutput(svg, FormatPipelineSvg(drawn), streams));
    if (svg == "-") return Done{};
  }
  if (csv) {
    streams.out << FormatCsv(shown[0].timed.schedule);
  } else if (json) {
    auto all = nlohmann::ordered_json::array();
    for (const ShownSchedule& each : shown) all.push_back(ToJson(each));
    PrintJson({{"schedules", all}}, streams);
  } else {
    streams.out << (name.empty() ? FormatComparison(shown) : FormatOne(shown[0], streams.width));
  }
  return Done{};
}

Status ScheduleCommand::Run(const Streams& streams) const {
  if (csv && name.empty()) return Error(Diag::kUsage, "--csv prints one schedule; give a NAME");
  HEDDLE_RETURN_IF_ERROR(CheckOneInput("NAME", name, "--step", step));
  HEDDLE_RETURN_IF_ERROR(CheckOneOutput({{"--csv", csv}, {"--json", json}, {"--svg", svg == "-"}}));
  HEDDLE_TRY(std::vector<PipelineSchedule> schedules, Load(streams));
  HEDDLE_TRY(std::vector<ShownSchedule> shown, Show(std::move(schedules), streams));
  HEDDLE_RETURN_IF_ERROR(LeaveOut(shown));
  const PipelineSchedule& first = shown[0].timed.schedule;
  if (auto ranks_there = static_cast<int64_t>(first.ranks.size());
      first.micro_batches < ranks_there)
    PrintNotes(std::vector{fmt::format("{} for {}; most ranks are idle",
                                       CountedMicroBatches(first.micro_batches),
                                       Counted(ranks_there, "rank"))},
               streams);
  return WriteOutputs(shown, streams);
}

}  // namespace

void AddSchedule(CommandSet& commands) { commands.Add<ScheduleCommand>(); }

}  // namespace heddle
