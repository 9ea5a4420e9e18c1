#include "heddle/cli/torch/train/processes.h"

#include <cstring>
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/base/text.h"

namespace heddle {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFlag = "--nproc";

// This command line, as each rank gets it.
std::vector<std::string> ArgumentsOfRanks() {
  std::vector<std::string> args;
  bool skip = false;
  for (const std::string& arg : TheseArguments()) {
    bool given = arg == kFlag;
    if (!skip && !given && !arg.starts_with(std::string(kFlag) + "=")) args.push_back(arg);
    skip = given;
  }
  return args;
}

Json ToJson(const Difference& d) {
  return {{"rank", d.rank},         {"held", d.held ? static_cast<int>(*d.held) : -1},
          {"param", d.param},       {"element", d.element},
          {"elements", d.elements}, {"differing", d.differing_elements},
          {"first", d.first},       {"second", d.second}};
}

Difference DifferenceFrom(const Json& json) {
  Difference d;
  d.rank = json["rank"];
  if (json["held"] >= 0) d.held = static_cast<Held>(json["held"].get<int>());
  d.param = json["param"];
  d.element = json["element"];
  d.elements = json["elements"];
  d.differing_elements = json["differing"];
  d.first = json["first"];
  d.second = json["second"];
  return d;
}

}  // namespace

void ProcessFlags::Declare(Flags& flags) {
  flags.Option(
      kFlag, processes,
      "start N processes on this machine, one per rank, like torchrun (0: run all ranks in "
      "this process)",
      {.least = 0, .most = 4096});
  flags.Option("--runtime.timeout", timeout, "seconds that processes wait for each other",
               {.least = 1});
}

ProcessesEnd RunOnProcesses(int64_t ranks, const ProcessFlags& flags, const SignalGate& gate,
                            const Streams& streams) {
  Result<OwnStore> store = OpenStore(flags.Timeout());
  if (!store.ok()) return {.code = Report(store.diagnostics(), streams)};
  Job job{.program = ThisProgram(),
          .args = ArgumentsOfRanks(),
          .processes = ranks,
          .environment = {{"MASTER_ADDR", "127.0.0.1"},
                          {"MASTER_PORT", std::to_string(store->port)},
                          {kLaunchedVariable, "1"},
                          // The name under which torchrun says that it holds the store.
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}}};
  Result<JobEnd> end = RunJob(job, gate);
  if (!end.ok()) return {.code = Report(end.diagnostics(), streams)};
  bool stopped = end->stopped != 0;
  if (end->ok()) return {.stopped = stopped};
  auto name = [](int signal) { return fmt::format("signal {} ({})", signal, ::strsignal(signal)); };
  // Ranks that train save when they are asked to end. Those that have not begun to train just end.
  if (stopped)
    streams.err << fmt::format("the job was stopped by {} before its ranks could save and end\n",
                               name(end->stopped));
  if (end->signal != 0) {
    if (end->signal != end->stopped)
      streams.err << fmt::format("rank {} was ended by {}\n", end->rank, name(end->signal));
    return {.code = ExitCode::kFault, .stopped = stopped};
  }
  streams.err << fmt::format("rank {} ended with exit code {}\n", end->rank, end->code);
  bool known = end->code <= static_cast<int>(ExitCode::kFault);
  return {.code = known ? static_cast<ExitCode>(end->code) : ExitCode::kFault, .stopped = stopped};
}

ExitCode RunAsRank(const PeerAddress& address, const ProcessFlags& flags,
                   const std::function<Status()>& prepare,
                   const std::function<Result<ExitCode>(Peers&)>& work, const Streams& streams) {
  if (flags.processes > 0)
    return Report(
        {MakeDiagnostic(Diag::kUsage,
                        "--nproc is given, and RANK is set: this process is a rank already")},
        streams);
  Status prepared = prepare();
  if (!prepared.ok()) return Report(prepared.diagnostics(), streams);
  auto notice = [&](const std::string& line) { streams.err << line << "\n" << std::flush; };
  Result<std::unique_ptr<Peers>> peers = Peers::Meet(address, flags.Timeout(), notice);
  if (!peers.ok()) return Report(peers.diagnostics(), streams);
  Result<ExitCode> done = work(**peers);
  if (done.ok()) return *done;
  (*peers)->watch().Fail(done.diagnostics()[0].message);
  Report(done.diagnostics(), streams);
  return ExitCode::kFault;
}

Status CheckProcesses(int64_t processes, const Mesh& mesh) {
  if (processes == mesh.ranks()) return Done{};
  return Error(Diag::kMeshSize, "the job has {} {}, the mesh [{}] has {}", processes,
               processes == 1 ? "process" : "processes", Format(mesh),
               Counted(mesh.ranks(), "rank"));
}

Result<WorldOptions> OwnRank(Peers& peers, const Module& module, c10::Device device) {
  WorldOptions options;
  options.device = device;
  options.ranks = {peers.rank()};
  HEDDLE_TRY(options.transport,
             ProcessTransport::Connect(
                 peers, module.mesh, Communicators(module.mesh, module.graphs[0]), device.type()));
  return options;
}

Share<Comparison> ShareComparison(Peers& peers) {
  return [&peers](const Comparison& own) -> Result<Comparison> {
    Json json = {{"tensors", own.tensors},
                 {"elements", own.elements},
                 {"differing_bits", own.differing_bits}};
    if (own.first) json["first"] = ToJson(*own.first);
    HEDDLE_TRY(std::vector<std::string> texts, peers.Exchange(json.dump()));
    Comparison all;
    for (const std::string& text : texts) {
      json = Json::parse(text);
      all.tensors += json["tensors"].get<int64_t>();
      all.elements += json["elements"].get<int64_t>();
      all.differing_bits += json["differing_bits"].get<int64_t>();
      if (json.contains("first") && !all.first) all.first = DifferenceFrom(json["first"]);
    }
    return all;
  };
}

Share<std::optional<NodeFinding>> ShareOrigin(Peers& peers) {
  return [&peers](const std::optional<NodeFinding>& own) -> Result<std::optional<NodeFinding>> {
    Json json;
    if (own)
      json = {{"step", own->step}, {"rank", own->rank}, {"node", own->node}, {"what", own->what}};
    HEDDLE_TRY(std::vector<std::string> texts,
               peers.Exchange(json.dump(-1, ' ', false, Json::error_handler_t::replace)));
    for (const std::string& text : texts) {
      json = Json::parse(text);
      if (json.is_null()) continue;
      return std::optional(NodeFinding{json["step"], json["rank"], json["node"], json["what"]});
    }
    return std::optional<NodeFinding>();
  };
}

}  // namespace heddle
