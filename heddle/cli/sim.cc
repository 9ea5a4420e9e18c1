// heddle sim: a step on a cluster, before anybody runs it.
#include <algorithm>
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/base/text.h"
#include "heddle/cli/commands.h"
#include "heddle/report/sim_report.h"
#include "heddle/report/trace.h"

namespace heddle {
namespace {

struct SimCommand {
  static constexpr const char* kName = "sim";
  static constexpr const char* kSummary =
      "Simulate a graph on a cluster: time, exposed collectives, memory";
  static constexpr const char* kNote =
      "Clusters: h100-8x, h200-8x, b200-8x, a100-8x, cpu, or a JSON file of your own; docs/cost.md "
      "describes them and files of measured times.";

  std::string file;
  std::string cluster = "h100-8x";
  std::optional<int64_t> nodes;
  std::string costs;
  std::string collectives = "native";
  std::string rules = "native";
  bool fuse = false;
  std::optional<int64_t> slowdown;
  std::string memory_cap;
  bool free_inputs = false;
  std::optional<int64_t> tokens;
  std::string trace;
  bool timeline = false;
  bool json = false;
  std::string job;

  void Declare(Flags& flags);
  ExitCode Run(const Streams& streams) const;

 private:
  Result<CostModel> MakeModel() const;
  Result<SimulateOptions> MakeOptions() const;
  Status Simulate(const Streams& streams) const;
};

void SimCommand::Declare(Flags& flags) {
  flags.Positional("FILE", file, "the graph that a rank runs, or - for standard input");
  flags.Option("--cluster", cluster, "what it runs on, by name or as a path to a JSON file");
  flags.Option("--nodes", nodes, "nodes of the cluster (default: as many as the mesh needs)");
  flags.Option("--costs", costs,
               "measured times that win over the models: JSON, or a table of collectives");
  flags.Option("--collectives", collectives, "the model of collectives: native or nccl-2.27");
  flags.Switch("--fuse", fuse, "price pointwise ops that feed each other as one kernel");
  flags.Option("--slowdown", slowdown,
               "per cent by which compute is slower while a collective is under way (default: the "
               "cluster's)");
  flags.Option("--memory-cap", memory_cap,
               "what the schedule may use, as in 64GiB (default: the device's memory)");
  flags.Switch("--free-inputs", free_inputs,
               "let go of each input after its last reader (default: the caller holds them)");
  flags.Option("--tokens", tokens,
               "tokens of a step, all ranks together (default: what the graph says)");
  flags.Option("--rules", rules,
               "native, or autoparallel: 1 us for every node, links never shared, nothing packed");
  flags.Option("--trace", trace, "write a trace for Perfetto or chrome://tracing to this file");
  flags.Switch("--timeline", timeline, "print everything that takes time, in order");
  flags.Switch("--json", json,
               "print an object, or a list of one for each graph; times are in milliseconds");
  flags.Config(job);
}

// The position of `name` among the choices of a flag.
Result<size_t> Choose(std::string_view flag, std::string_view name,
                      std::span<const std::string_view> choices) {
  auto at = std::ranges::find(choices, name);
  if (at != choices.end()) return static_cast<size_t>(at - choices.begin());
  std::string all;
  for (std::string_view choice : choices)
    all += fmt::format("{}{}", all.empty() ? "" : " or ", choice);
  return Error(Diag::kBadChoice, "{} is `{}`, expected {}{}", flag, name, all,
               NearestHint(name, choices));
}

Result<CostModel> SimCommand::MakeModel() const {
  constexpr std::string_view kModels[] = {"native", "nccl-2.27"};
  constexpr std::string_view kRules[] = {"native", "autoparallel"};
  CostOptions options;
  options.nodes = nodes;
  options.fuse = fuse;
  HEDDLE_TRY(size_t model, Choose("--collectives", collectives, kModels));
  options.collectives = static_cast<CollectiveModel>(model);
  HEDDLE_TRY(size_t rule, Choose("--rules", rules, kRules));
  options.rules = static_cast<TimelineRules>(rule);
  HEDDLE_TRY(Cluster loaded, LoadCluster(cluster));
  std::optional<MeasuredCosts> measured;
  if (!costs.empty()) {
    HEDDLE_TRY(measured, LoadCosts(costs));
  }
  return CostModel::Make(std::move(loaded), options, std::move(measured));
}

Result<SimulateOptions> SimCommand::MakeOptions() const {
  SimulateOptions options;
  if (slowdown && (*slowdown < 0 || *slowdown > 1000))
    return Error(Diag::kBadChoice, "--slowdown is {} per cent, expected 0 to 1000", *slowdown);
  if (slowdown) options.slowdown = *slowdown * 10;
  if (tokens && *tokens < 1)
    return Error(Diag::kBadChoice, "--tokens is {}, expected at least 1", *tokens);
  options.tokens = tokens;
  if (free_inputs) options.inputs = InputMemory::kFreed;
  if (!memory_cap.empty()) {
    HEDDLE_TRY(options.memory_cap, ParseBytes(memory_cap));
  }
  return options;
}

Status SimCommand::Simulate(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(
      CheckOneOutput({{"--trace=-", trace == "-"}, {"--json", json}, {"--timeline", timeline}}));
  HEDDLE_TRY(CostModel model, MakeModel());
  HEDDLE_TRY(SimulateOptions options, MakeOptions());
  HEDDLE_TRY(Module module, LoadModule(file, streams));
  std::vector<Simulation> all;
  for (const Graph& graph : module.graphs) {
    HEDDLE_TRY(Simulation one, heddle::Simulate(module, graph, model, options));
    all.push_back(std::move(one));
  }
  auto list = nlohmann::ordered_json::array();
  std::string text;
  std::vector<TracedGraph> traced;
  for (size_t i = 0; i < all.size(); ++i) {
    const Graph& graph = module.graphs[i];
    traced.push_back({&graph, &all[i]});
    if (json) list.push_back(ToJson(module, graph, model, all[i]));
    if (!text.empty()) text += "\n";
    text += timeline ? FormatTimeline(graph, all[i])
                     : FormatSimulation(module, graph, model, all[i], streams.color);
  }
  if (!trace.empty())
    HEDDLE_RETURN_IF_ERROR(WriteOutput(trace, FormatTrace(module, traced), streams));
  if (trace == "-") return Done{};
  // One graph is the common case, and gets one object.
  if (json) {
    PrintJson(all.size() == 1 ? list[0] : list, streams);
  } else {
    streams.out << text;
  }
  return Done{};
}

ExitCode SimCommand::Run(const Streams& streams) const {
  Status status = Simulate(streams);
  return status.ok() ? ExitCode::kDone : Report(status.diagnostics(), streams);
}

}  // namespace

void AddSim(CommandSet& commands) { commands.Add<SimCommand>(); }

}  // namespace heddle
