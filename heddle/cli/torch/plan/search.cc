// heddle search: finds the fastest ways to train a model on N devices.
#include "heddle/search/arrangement/plan_search.h"

#include <ostream>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "heddle/cli/step/sim_flags.h"
#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/job_flags.h"
#include "heddle/cli/torch/plan/published.h"
#include "heddle/core/base/clock.h"
#include "heddle/core/base/file.h"
#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"
#include "heddle/price/cost/price_options.h"
#include "heddle/report/html/search_page.h"
#include "heddle/run/metrics/progress.h"
#include "heddle/search/memory/memory_search.h"
#include "heddle/search/placement/repeat_groups.h"

namespace heddle {
namespace {

// Matrix products of fewer rows leave devices idle.
constexpr int64_t kLeastPositions = 1024;
// From this length on, a sequence may be worth dividing although every device could have its own.
constexpr int64_t kLongSequence = 16384;

struct SearchCommand {
  static constexpr const char* kName = "search";
  static constexpr const char* kNote =
      "Every listed plan was compiled and simulated. docs/search.md describes the search. Exit "
      "code 3: no plan fits into memory.";
  static constexpr const char* kExamples =
      "heddle search --model=llama3 --flavor=8B --devices=64 --cluster=h100-8x\n"
      "heddle search --model=llama3 --flavor=70B --devices=256 --memory.budget=60GiB "
      "--write-jobs=jobs";

  ModelOptions model;
  int64_t devices = 0;
  int64_t global_batch = 0;
  std::string cluster = "h100-8x";
  std::optional<price::Execution> execution;
  std::string memory_budget;
  bool automatic = true;
  std::string plans;
  std::string jobs;
  std::string html;
  bool json = false;
  std::string job;
  // The command's own flags, for the job files that it writes.
  const Flags* all = nullptr;

  void Declare(Flags& flags);
  Status Run(const Streams& streams) const;

 private:
  struct Answer {
    search::SearchResult result;
    std::optional<search::TriedPoint> published;
    std::string publisher;
    // The device type whose kernels the step uses, such as `cuda`.
    std::string device;
    // How far predicted steps are from measured ones. None: no step was measured.
    std::optional<price::ExecutionFigures::Range> range;
    Bytes budget;
    int64_t sequences = 0;
    double seconds = 0;
  };
  Result<Answer> Search(const Streams& streams) const;
  Result<search::SearchedModel> MakeSearched(const run::ModelConfig& config) const;
  bool Supports(const run::ModelConfig& config, const search::Arrangement& arrangement) const;
  Status CheckSizes() const;
  Status WriteFiles(const Answer& answer, const Streams& streams) const;
  Status WriteJob(const Answer& answer, const search::TriedPoint& tried, const std::string& path,
                  const Streams& streams) const;
  // A command that simulates the job of row `n`, counted from 1. Without --write-jobs, a command
  // that writes the jobs.
  std::string CommandFor(size_t n, const Streams& streams) const;
  double TokensPerSecond(const Answer& answer, const search::TriedPoint& tried) const;
  // Whether the measured step may be as fast as that of the fastest plan.
  static bool MayBeBest(const Answer& answer, const search::TriedPoint& tried);
  // A note on these plans; empty without any.
  static std::string WithinError(const Answer& answer);
  nlohmann::ordered_json RowOf(const Answer& answer, const search::TriedPoint& tried) const;
  static nlohmann::ordered_json PipelineOf(const Answer& answer);
  nlohmann::ordered_json ToJson(const Answer& answer, const Streams& streams) const;
  std::string FormatAnswer(const Answer& answer, const Streams& streams) const;
};

void SearchCommand::Declare(Flags& flags) {
  all = &flags;
  DeclareStep(flags, model, &cluster);
  flags.Section("Search");
  flags.Option("--devices", devices, "number of devices", {.least = 0});
  flags.Option("--cluster", cluster, "cluster of the devices: a name, or a JSON file");
  DeclareExecution(flags, execution);
  flags.Option("--training.global_batch_size", global_batch,
               "sequences per step over all devices (0: --training.local_batch_size for each)",
               {.least = 0});
  flags.Option("--memory.budget", memory_budget,
               "memory limit of a step on each device, as in 60GiB (default: 90 % of its memory)");
  flags.Switch("--parallelism.auto", automatic,
               "let the solver place the model, in addition to presets");
  flags.Section("Output");
  flags.Option("--write-plans=FOLDER", plans, "write the listed plans to this folder");
  flags.Option("--write-jobs=FOLDER", jobs,
               "write a job file for each listed plan to this folder, for `heddle sim|train|verify "
               "--config`");
  flags.Option("--html=FILE", html, "write a page that compares them to this file");
  flags.Switch("--json", json, "print the result as JSON");
  flags.Config(job);
}

Status SearchCommand::CheckSizes() const {
  if (devices == 0)
    return Error(Diag::kUsage, "--devices is {}; expected the number of devices", devices);
  if (devices > Mesh::kMaxRanks)
    return Error(Diag::kMeshSize, "--devices is {}, expected 1 to {}", devices, Mesh::kMaxRanks);
  if (model.local_batch_size < 1)
    return Error(Diag::kModelSize, "--training.local_batch_size is {}, expected at least 1",
                 model.local_batch_size);
  int64_t tokens = 0;
  int64_t sequences = global_batch;
  bool overflows =
      global_batch == 0 && __builtin_mul_overflow(devices, model.local_batch_size, &sequences);
  if (overflows || __builtin_mul_overflow(sequences, model.seq_len, &tokens))
    return Error(Diag::kModelSize, "the tokens of a step do not fit into 64 bits");
  HEDDLE_RETURN_IF_ERROR(model.CheckNoWeights());
  return CheckOneOutput({{"the page", html == "-"}, {"--json", json}});
}

bool SearchCommand::Supports(const run::ModelConfig& config,
                             const search::Arrangement& arrangement) const {
  if (!CheckHeads(config, arrangement.tensor).ok()) return false;
  const int64_t context = arrangement.context;
  if (context == 1) return true;
  const int64_t sequences = global_batch != 0 ? global_batch : devices * model.local_batch_size;
  if (model.seq_len < kLongSequence && sequences >= devices) return false;
  const bool heads = arrangement.context_heads;
  if (heads && !MayExchangeHeads(config, context * arrangement.tensor)) return false;
  ModelOptions flags = model;
  (heads ? flags.splits_heads : flags.splits_queries) = true;
  const int64_t parts = heads ? context : 2 * context;
  return model.seq_len % parts == 0 && model.seq_len / parts >= kLeastPositions &&
         flags.Numerics(config).ok();
}

Result<search::SearchedModel> SearchCommand::MakeSearched(const run::ModelConfig& config) const {
  search::SearchedModel searched;
  searched.layers = config.n_layers;
  searched.small_layers = config.moe.experts > 0 ? config.moe.dense_layers + 2 : 2;
  searched.experts = config.moe.experts;
  searched.seq_len = model.seq_len;
  searched.supports = [this, config](const search::Arrangement& arrangement) {
    return Supports(config, arrangement);
  };
  searched.capture = [this](const search::StepRequest& request) -> Result<Module> {
    ModelOptions flags = model;
    flags.local_batch_size = request.sequences;
    flags.splits_queries = request.splits_queries;
    flags.sizes["n_layers"] = request.layers;
    HEDDLE_TRY(run::Model made,
               flags.Make(1, request.norms_apart,
                          request.micro_batch ? run::LossDivisor::kGiven
                                              : std::optional<run::LossDivisor>()));
    run::CaptureOptions capture;
    if (request.updates) capture.optimizer = run::OptimizerOptions();
    capture.accumulate = request.accumulates;
    return run::CaptureModel(made, capture);
  };
  searched.preset = [config](const Graph& graph,
                             const search::Arrangement& arrangement) -> Result<compile::Plan> {
    HEDDLE_TRY(compile::Plan plan,
               compile::MakePlan(graph, search::MeshOf(arrangement), config.family->rules(),
                                 search::PresetOf(arrangement)));
    return search::Compacted(std::move(plan), graph);
  };
  return searched;
}

Result<SearchCommand::Answer> SearchCommand::Search(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(CheckSizes());
  Clock clock;
  price::PriceOptions prices;
  prices.cluster = cluster;
  prices.chosen_execution = execution;
  Answer answer;
  HEDDLE_TRY(answer.device, model.DeviceName());
  prices.on_cpu = answer.device == Name(price::DeviceType::kCpu);
  HEDDLE_TRY(price::CostModel costs, prices.Load());
  HEDDLE_TRY(run::ModelConfig config, model.Config());
  HEDDLE_TRY(search::SearchedModel searched, MakeSearched(config));
  answer.range = costs.cluster().device.Under(costs.options().execution).range;
  answer.sequences = global_batch != 0 ? global_batch : devices * model.local_batch_size;
  answer.budget = {costs.cluster().device.memory.value / 10 * 9};
  if (!memory_budget.empty()) {
    HEDDLE_TRY(answer.budget, search::ParseBudget(memory_budget));
  }
  search::PlanSearchOptions options{.devices = devices,
                                    .global_batch = answer.sequences,
                                    .budget = answer.budget,
                                    .cluster = cluster};
  options.automatic = automatic;
  bool terminal = run::IsErrorTerminal(streams.err);
  options.progress = [&](const search::SearchProgress& now) {
    if (!terminal) return;
    std::string line = fmt::format("{}: {} of {} plans", now.doing, now.done, now.all);
    if (now.best != nullptr)
      line += fmt::format("; best so far {} with {}", Format(now.best->outcome.step),
                          Format(now.best->point));
    streams.err << "\r\x1b[K" << line.substr(0, 100) << std::flush;
  };
  search::PlanSearch search(std::move(searched), costs, options);
  Result<search::SearchResult> found = search.Run();
  if (terminal) streams.err << "\r\x1b[K" << std::flush;
  if (!found.ok()) return std::move(found).failure();
  answer.result = *std::move(found);
  for (search::TriedPoint& tried : answer.result.front) tried.plan.decisions.budget = answer.budget;
  if (auto published = PublishedFor(config, devices, answer.sequences)) {
    HEDDLE_TRY(answer.published, search.Try(published->point));
    answer.publisher = published->source;
  }
  answer.seconds = Seconds(clock.Elapsed());
  return answer;
}

double SearchCommand::TokensPerSecond(const Answer& answer, const search::TriedPoint& tried) const {
  return static_cast<double>(answer.sequences * model.seq_len) / Seconds(tried.outcome.step);
}

bool SearchCommand::MayBeBest(const Answer& answer, const search::TriedPoint& tried) {
  if (!answer.range) return false;
  auto best = static_cast<double>(answer.result.front[0].outcome.step.value);
  auto step = static_cast<double>(tried.outcome.step.value);
  return step * (1 - answer.range->below) <= best * (1 + answer.range->above);
}

std::string SearchCommand::WithinError(const Answer& answer) {
  std::string plans;
  size_t count = 0;
  for (size_t i = 1; i < answer.result.front.size(); ++i) {
    if (!MayBeBest(answer, answer.result.front[i])) continue;
    plans += fmt::format("{}{}", plans.empty() ? "" : ", ", i + 1);
    ++count;
  }
  if (count == 0) return "";
  return fmt::format(
      "{} within the error of plan 1: measured steps took {:.0f} % less to {:.0f} % more than "
      "predicted",
      count == 1 ? fmt::format("plan {} is", plans) : fmt::format("plans {} are", plans),
      100 * answer.range->below, 100 * answer.range->above);
}

nlohmann::ordered_json SearchCommand::RowOf(const Answer& answer,
                                            const search::TriedPoint& tried) const {
  const search::Arrangement& a = tried.point.arrangement;
  double tokens = TokensPerSecond(answer, tried);
  nlohmann::ordered_json row = {
      {"mesh", fmt::format("[{}]", Format(search::MeshOf(a)))},
      {"pp", a.pipeline},
      {"dp_replicate", a.replicate},
      {"dp_shard", a.shard},
      {"cp", a.context},
      {"context_parallel_method", a.context == 1 || tried.point.placed == search::PlacedBy::kAuto
                                      ? nlohmann::ordered_json()
                                      : nlohmann::ordered_json(MethodOf(a))},
      {"tp", a.tensor},
      {"ep", a.experts},
      {"micro_batches", a.micro_batches},
      {"placed_by", tried.point.placed == search::PlacedBy::kAuto ? "auto" : "preset"},
      {"checkpoint", tried.point.policy},
      {"reshard", tried.point.reshard},
      {"pipeline", tried.point.scheduled == search::ScheduledBy::kOverlap ? "overlap" : "fsdp"},
      {"tokens_per_second", tokens},
      {"tokens_per_second_per_device", tokens / static_cast<double>(devices)}};
  row.update(search::ToJson(tried.outcome));
  const bool pipeline = a.pipeline > 1;
  const Nanos bound = tried.outcome.bounds.step;
  using Json = nlohmann::ordered_json;
  row["schedule"] = pipeline ? Json(tried.point.schedule) : Json();
  row["stages"] = pipeline ? Json(tried.point.first_positions) : Json();
  row["bound_ms"] = pipeline ? Json(Millis(bound)) : Json();
  row["gap"] = pipeline ? Json(search::GapOf(tried.outcome.step, bound)) : Json();
  row["context_bytes"] = tried.outcome.context.bytes.value;
  row["context_exposed_ms"] = Millis(tried.outcome.context.exposed);
  auto measured = [&](double times) {
    return answer.range ? nlohmann::ordered_json(Millis(tried.outcome.step) * times)
                        : nlohmann::ordered_json();
  };
  row["step_ms_low"] = measured(answer.range ? 1 - answer.range->below : 0);
  row["step_ms_high"] = measured(answer.range ? 1 + answer.range->above : 0);
  row["within_error_of_best"] = MayBeBest(answer, tried);
  return row;
}

nlohmann::ordered_json SearchCommand::PipelineOf(const Answer& answer) {
  if (!answer.result.pipeline) return nullptr;
  const auto& [best, simulated] = *answer.result.pipeline;
  return {{"plan", Format(best.point)},
          {"step_ms", Millis(best.step)},
          {"bound_ms", Millis(best.bound)},
          {"gap", search::GapOf(best.step, best.bound)},
          {"peak_bytes", best.peak.value},
          {"simulated", simulated},
          {"is_best", answer.result.front[0].point == best.point}};
}

std::string SearchCommand::CommandFor(size_t n, const Streams& streams) const {
  std::string out = ShellQuoted(streams.program);
  if (!jobs.empty())
    return out + " sim " + ShellQuoted(fmt::format("--config={}/{}.toml", jobs, n));
  for (const std::string& arg : streams.args) out += " " + ShellQuoted(arg);
  return out + " --write-jobs=jobs";
}

nlohmann::ordered_json SearchCommand::ToJson(const Answer& answer, const Streams& streams) const {
  auto front = nlohmann::ordered_json::array();
  for (const search::TriedPoint& tried : answer.result.front) {
    front.push_back(RowOf(answer, tried));
    front.back()["command"] = CommandFor(front.size(), streams);
  }
  nlohmann::ordered_json out = {{"devices", devices},       {"cluster", cluster},
                                {"device", answer.device},  {"global_batch_size", answer.sequences},
                                {"seq_len", model.seq_len}, {"budget_bytes", answer.budget.value},
                                {"best", front[0]},         {"front", front}};
  if (answer.published) {
    out["published"] = RowOf(answer, *answer.published);
    out["published"]["source"] = answer.publisher;
  }
  if (answer.result.methods)
    out["methods"] = {{"chosen", RowOf(answer, answer.result.methods->chosen)},
                      {"other", RowOf(answer, answer.result.methods->other)}};
  out["best_pipeline"] = PipelineOf(answer);
  out["execution"] = Name(execution.value_or(price::Execution::kHeddle));
  out["points"] = answer.result.points;
  out["tried"] = answer.result.tried;
  out["pruned"] = answer.result.pruned;
  out["pruned_by_promise"] = answer.result.pruned_by_promise;
  out["notes"] = answer.result.notes;
  out["seconds"] = answer.seconds;
  return out;
}

std::string SearchCommand::FormatAnswer(const Answer& answer, const Streams& streams) const {
  TextTable table({"", "plan", "tokens/s>", "per device>", "step>", "exposed>", "peak>"});
  auto add = [&](std::string name, const search::TriedPoint& tried) {
    double tokens = TokensPerSecond(answer, tried);
    table.AddRow({std::move(name), Format(tried.point), WithCommas(static_cast<int64_t>(tokens)),
                  WithCommas(static_cast<int64_t>(tokens / static_cast<double>(devices))),
                  Format(tried.outcome.step), Format(tried.outcome.exposed),
                  Format(tried.outcome.peak)});
  };
  size_t n = 0;
  for (const search::TriedPoint& tried : answer.result.front) add(fmt::format("{}", ++n), tried);
  if (answer.published) add(answer.publisher, *answer.published);
  std::string out = table.Format();
  if (answer.result.methods) out += fmt::format("\n{}\n", WhyMethod(*answer.result.methods));
  if (std::string best = WhyPipeline(answer.result); !best.empty())
    out += fmt::format("\n{}\n", best);
  std::vector<std::string> notes = answer.result.notes;
  if (std::string note = WithinError(answer); !note.empty()) notes.push_back(note);
  if (!notes.empty()) out += "\n";
  for (const std::string& note : notes) out += fmt::format("note: {}\n", note);
  return out +
         fmt::format(
             "\n{} plans: {} simulated, {} pruned, in {:.1f} s; {} sequences a step, "
             "at most {} of a device\n",
             answer.result.points, answer.result.tried, answer.result.pruned, answer.seconds,
             answer.sequences, Format(answer.budget)) +
         fmt::format("\n{}:\n{}\n",
                     jobs.empty() ? "to write these plans as jobs" : "to simulate the first job",
                     CommandFor(1, streams));
}

// Writes a whole job for `heddle sim`, `train` and `verify --config`.
Status SearchCommand::WriteJob(const Answer& answer, const search::TriedPoint& tried,
                               const std::string& path, const Streams& streams) const {
  std::string plan = path + ".plan";
  HEDDLE_RETURN_IF_ERROR(WriteOutput(
      plan, fmt::format("// {}\n{}", Format(tried.point), compile::FormatPlan(tried.plan)),
      streams));
  const search::Arrangement& arrangement = tried.point.arrangement;
  const compile::PlanBatch& batch = *tried.plan.decisions.batch;
  std::vector<JobLine> lines = all->Lines(kModelSections);
  // The plan states the batch.
  std::erase_if(lines, [](const JobLine& line) {
    return line.key == "training.seq_len" || line.key == "training.local_batch_size";
  });
  auto add = [&](std::string key, JobValueKind kind, std::string value) {
    lines.push_back({std::move(key), JobValue{kind, {std::move(value)}}, ""});
  };
  add("plan", JobValueKind::kText, AbsolutePath(plan));
  add("cluster", JobValueKind::kText, cluster);
  if (execution) add("runtime.execution", JobValueKind::kText, std::string(Name(*execution)));
  add("training.seq_len", JobValueKind::kInt, std::to_string(batch.seq_len));
  add("training.local_batch_size", JobValueKind::kInt,
      std::to_string(batch.pass_sequences() / arrangement.batch_ranks()));
  add("training.global_batch_size", JobValueKind::kInt, std::to_string(batch.sequences));
  std::string text =
      fmt::format("# {}\n# predicted: {} tokens/s, step {}, peak {} on {}\n", Format(tried.point),
                  WithCommas(static_cast<int64_t>(TokensPerSecond(answer, tried))),
                  Format(tried.outcome.step), Format(tried.outcome.peak), cluster);
  return WriteOutput(path + ".toml", text + FormatJob(lines), streams);
}

Status SearchCommand::WriteFiles(const Answer& answer, const Streams& streams) const {
  if (!plans.empty()) {
    HEDDLE_RETURN_IF_ERROR(MakeDirectories(plans));
    size_t n = 0;
    for (const search::TriedPoint& tried : answer.result.front) {
      std::string path = fmt::format("{}/{}.plan", plans, ++n);
      std::string text =
          fmt::format("// {}\n{}", Format(tried.point), compile::FormatPlan(tried.plan));
      HEDDLE_RETURN_IF_ERROR(WriteOutput(path, text, streams));
    }
  }
  if (!jobs.empty()) {
    HEDDLE_RETURN_IF_ERROR(MakeDirectories(jobs));
    size_t n = 0;
    for (const search::TriedPoint& tried : answer.result.front)
      HEDDLE_RETURN_IF_ERROR(WriteJob(answer, tried, fmt::format("{}/{}", jobs, ++n), streams));
  }
  if (html.empty()) return Done{};
  std::vector<SearchRow> rows;
  size_t n = 0;
  auto add = [&](std::string name, const search::TriedPoint& tried) {
    rows.push_back({.name = std::move(name),
                    .point = tried.point,
                    .tokens_per_second = TokensPerSecond(answer, tried),
                    .outcome = tried.outcome,
                    .command = {},
                    .text = compile::FormatPlan(tried.plan)});
  };
  for (const search::TriedPoint& tried : answer.result.front) {
    add(fmt::format("{}", ++n), tried);
    rows.back().command = CommandFor(n, streams);
  }
  if (answer.published) {
    add(answer.publisher, *answer.published);
    rows.back().published = true;
  }
  SearchPage page{.model = fmt::format("{} {}", model.model, model.flavor),
                  .cluster = cluster,
                  .devices = devices,
                  .sequences = answer.sequences,
                  .seq_len = model.seq_len,
                  .budget = answer.budget,
                  .rows = std::move(rows),
                  .methods = answer.result.methods,
                  .pipeline = WhyPipeline(answer.result),
                  .points = answer.result.points,
                  .tried = answer.result.tried,
                  .pruned = answer.result.pruned};
  return WriteOutput(html, FormatSearchPage(page), streams);
}

Status SearchCommand::Run(const Streams& streams) const {
  HEDDLE_TRY(Answer answer, Search(streams));
  HEDDLE_RETURN_IF_ERROR(WriteFiles(answer, streams));
  if (json)
    PrintJson(ToJson(answer, streams), streams);
  else if (html != "-")
    streams.out << FormatAnswer(answer, streams);
  return Done{};
}

}  // namespace

void AddSearch(CommandSet& commands) { commands.Add<SearchCommand>(); }

}  // namespace heddle
