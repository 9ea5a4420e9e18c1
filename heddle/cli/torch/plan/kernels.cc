// heddle kernels: the kernels that a step launches on a GPU.
#include <algorithm>
#include <ostream>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "heddle/api/device/measure_launches.h"
#include "heddle/api/plan.h"
#include "heddle/cli/step/compile_flags.h"
#include "heddle/cli/step/sim_flags.h"
#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/job_flags.h"
#include "heddle/core/ir/program.h"
#include "heddle/core/kernel/launches.h"
#include "heddle/price/cost/kernel_time.h"

namespace heddle {
namespace {

struct KernelsCommand {
  static constexpr const char* kName = "kernels";
  static constexpr const char* kNote =
      "One entry per launch, in the order of the step: kernels of Heddle's own, matrix products, "
      "attention, collectives and other ops of ATen. Needs no GPU. A GPU runs a kernel of Heddle's "
      "own only if it has ATen's bits there; otherwise ATen runs its nodes. --measure runs the "
      "step "
      "on this machine's GPU and measures each launch.";
  static constexpr const char* kExamples =
      "heddle kernels --model=llama3 --flavor=8B --training.seq_len=8192 --runtime.device=cuda "
      "--json\n"
      "heddle kernels --model=llama3 --runtime.device=cuda --source=rows";

  PlanOptions options;
  CompileFlags compile;
  bool without_optimizer = false;
  std::string source;
  bool measure = false;
  bool json = false;

  void Declare(Flags& flags) {
    DeclareStep(flags, options.model, &options.prices.cluster);
    DeclareParallelism(flags, options.parallel);
    compile.Declare(flags);
    flags.Section("Costs");
    DeclarePrices(flags, options.prices, "cluster whose devices run the kernels");
    DeclareOptimizer(flags, *options.optimizer, without_optimizer);
    flags.Section("Measurement");
    flags.Switch("--measure", measure,
                 "run some steps on this machine's GPU, and measure the time of each launch");
    flags.Section("Output");
    flags.Choice("--source", source,
                 "print the CUDA C++ of generated kernels with this name, elements or rows, "
                 "instead; equal texts once",
                 {"elements", "rows"});
    flags.Switch("--json", json, "print JSON; bytes, and times in microseconds");
  }
  Status Run(const Streams& streams) const;

 private:
  // A launch, its ideal time from bytes and operations, and its predicted time.
  struct Priced {
    KernelLaunch launch;
    std::vector<std::string> nodes;
    Bytes bytes;
    Nanos ideal;
    Nanos predicted;
    // In microseconds.
    std::optional<double> measured = {};
  };
  Result<std::vector<Priced>> Make(const Streams& streams) const;
  void PrintSource(const std::vector<Priced>& launches, const Streams& streams) const;
};

Result<std::vector<KernelsCommand::Priced>> KernelsCommand::Make(const Streams& streams) const {
  PlanOptions complete = options;
  complete.compile = compile;
  if (without_optimizer) complete.optimizer = std::nullopt;
  HEDDLE_TRY(complete.parallel, WithPlan(options.parallel, streams));
  HEDDLE_TRY(PlanResult planned, api::Plan(complete));
  const PlannedStep& step = planned.step;
  if (ProgramAxis(step.module))
    return Error(Diag::kUsage,
                 "pipelines do not run on devices yet; remove "
                 "--parallelism.pipeline_parallel_degree");
  const price::CostModel& cost = planned.costs;
  LaunchList list = ListLaunches(SharedProgram(step.module));
  HEDDLE_TRY(price::GraphCosts prices, cost.Price(step.module, list.graph));
  const price::Device& device = cost.cluster().device;
  SymbolTable symbols = list.graph.types().symbols();
  std::vector<std::optional<double>> measured(list.launches.size());
  if (measure) {
    ModelOptions model = complete.model;
    model.cluster = &complete.prices.cluster;
    HEDDLE_TRY(measured, MeasureLaunches(model, step, list, [&](const std::string& line) {
                 streams.err << line << "\n";
               }));
  }
  std::vector<Priced> priced;
  for (KernelLaunch& launch : list.launches) {
    Priced entry{.launch = {}, .nodes = {}, .bytes = launch.bytes, .ideal = {}, .predicted = {}};
    for (NodeId node : launch.nodes) {
      if (list.graph[node].result_count > 0)
        entry.nodes.emplace_back(list.graph.name(list.graph[node].first_result));
    }
    entry.predicted = price::StreamTime(device, launch.bytes);
    if (launch.bytes.value == 0) {
      NodeId node = launch.nodes[0];
      Types operands;
      Types results;
      for (ValueId value : list.graph.operands(node))
        operands.push_back(value ? list.graph.types()[list.graph.type(value)] : Type());
      for (ValueId value : list.graph.results(node))
        results.push_back(list.graph.types()[list.graph.type(value)]);
      OpArgs args(list.graph.op(node), list.graph.attrs(node), step.module.mesh, symbols,
                  std::move(operands));
      Work work = InferWork(args, results);
      entry.bytes = work.read + work.written;
      if (IsMatrixWork(list.graph.op(node)))
        entry.ideal = price::IdealTime(device, args, work.flops);
      const price::NodeCost& node_cost = prices.nodes[node];
      entry.predicted =
          launch.form == "collective" ? node_cost.collective.total() : node_cost.compute;
    }
    entry.ideal =
        std::max(entry.ideal, price::WholeNanos(price::InNanos(entry.bytes, device.bandwidth)));
    entry.measured = measured[priced.size()];
    entry.launch = std::move(launch);
    priced.push_back(std::move(entry));
  }
  return priced;
}

void KernelsCommand::PrintSource(const std::vector<Priced>& launches,
                                 const Streams& streams) const {
  std::vector<std::string> printed;
  for (const Priced& entry : launches) {
    const std::string& text = entry.launch.text;
    if (entry.launch.name != source || text.empty() ||
        std::ranges::find(printed, text) != printed.end())
      continue;
    streams.out << fmt::format("{}// {}\n{}", printed.empty() ? "" : "\n",
                               fmt::join(entry.nodes, " "), text);
    printed.push_back(text);
  }
}

Status KernelsCommand::Run(const Streams& streams) const {
  HEDDLE_TRY(std::vector<Priced> launches, Make(streams));
  if (!source.empty()) {
    PrintSource(launches, streams);
    return Done{};
  }
  auto micros = [](Nanos time) { return static_cast<double>(time.value) / 1000; };
  if (json) {
    nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
    for (const Priced& entry : launches)
      kernels.push_back({{"name", entry.launch.name},
                         {"form", entry.launch.form},
                         {"nodes", entry.nodes},
                         {"bytes", entry.bytes.value},
                         {"ideal_us", micros(entry.ideal)},
                         {"predicted_us", micros(entry.predicted)},
                         {"measured_us", entry.measured ? nlohmann::ordered_json(*entry.measured)
                                                        : nlohmann::ordered_json()}});
    PrintJson({{"kernels", std::move(kernels)}}, streams);
    return Done{};
  }
  std::string measured_title = measure ? fmt::format(" {:>12}", "measured us") : "";
  streams.out << fmt::format("{:<50} {:<10} {:>6} {:>14} {:>10} {:>13}{}  {}\n", "kernel", "form",
                             "nodes", "bytes", "ideal us", "predicted us", measured_title,
                             "first node");
  for (const Priced& entry : launches) {
    std::string measured;
    if (measure)
      measured =
          entry.measured ? fmt::format(" {:>12.1f}", *entry.measured) : fmt::format(" {:>12}", "-");
    streams.out << fmt::format("{:<50} {:<10} {:>6} {:>14} {:>10.1f} {:>13.1f}{}  {}\n",
                               entry.launch.name, entry.launch.form, entry.launch.nodes.size(),
                               entry.bytes.value, micros(entry.ideal), micros(entry.predicted),
                               measured, entry.nodes.empty() ? "" : entry.nodes[0]);
  }
  return Done{};
}

}  // namespace

void AddKernels(CommandSet& commands) { commands.Add<KernelsCommand>(); }

}  // namespace heddle
