// heddle overlap: overlaps collectives with compute within a memory limit.
#include <algorithm>
#include <map>
#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/cli/commands.h"
#include "heddle/cli/step/sim_flags.h"
#include "heddle/compile/passes/chunks/async_tensor_parallel.h"
#include "heddle/compile/passes/overlap/overlap.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "heddle/report/sim_report.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

// Writes the order of node names and the members of buckets, so that other programs can replay the
// schedule.
class ScheduleWriter {
 public:
  // `before` is the original graph, which has the names of bucket members.
  ScheduleWriter(const Graph& before, const price::MeasuredCosts* costs)
      : costs_(costs != nullptr && costs->whole_graph ? costs : nullptr) {
    for (NodeId id : before.nodes()) {
      if (before[id].op != op::comm_wait) continue;
      NodeId start = before[before.operands(id)[0]].producer;
      if (!start) continue;
      for (ValueId result : before.results(id))
        member_of_[std::string(before.name(result))] = {
            std::string(before.name(before[start].first_result)),
            std::string(before.name(before[id].first_result))};
    }
  }

  ordered_json Write(const Graph& graph) {
    auto order = ordered_json::array();
    auto buckets = ordered_json::array();
    // Keyed by start of a bucket: the wait that represents it.
    std::map<uint32_t, std::string> wait_name;
    std::vector<NodeId> wait_of(graph.node_count());
    for (NodeId id : graph.nodes()) {
      if (graph[id].op != op::comm_wait) continue;
      if (NodeId start = graph[graph.operands(id)[0]].producer) wait_of[start.index()] = id;
    }
    for (NodeId id : graph.nodes()) {
      NodeId wait = wait_of[id.index()];
      if (wait && graph.operands(id).size() > 1) {
        auto members = ordered_json::array();
        for (ValueId result : graph.results(wait)) {
          const std::string& start = member_of_[std::string(graph.name(result))].start;
          if (std::find(members.begin(), members.end(), start) == members.end())
            members.push_back(start);
        }
        if (members.size() > 1) {
          order.push_back(members[0]);
          wait_name[id.index()] =
              member_of_[std::string(graph.name(graph[wait].first_result))].wait;
          buckets.push_back(std::move(members));
          continue;
        }
      }
      NodeId start =
          graph[id].op == op::comm_wait ? graph[graph.operands(id)[0]].producer : NodeId();
      if (start && wait_name.contains(start.index())) {
        order.push_back(wait_name[start.index()]);
      } else {
        AddNames(graph, id, order);
      }
    }
    return {{"order", order}, {"buckets", buckets}};
  }

 private:
  struct Member {
    std::string start;
    std::string wait;
  };

  void AddNames(const Graph& graph, NodeId id, ordered_json& order) const {
    for (ValueId result : graph.results(id)) {
      if (costs_ == nullptr || graph[id].result_count == 1) break;
      auto call = costs_->call_of_item.find(graph.name(result));
      if (call == costs_->call_of_item.end()) continue;
      order.push_back(call->second);
      break;
    }
    for (ValueId result : graph.results(id)) {
      std::string name(graph.name(result));
      // Unused results, and tensors that an import creates from numbers, are not in the file.
      if (costs_ == nullptr || costs_->nodes.contains(name)) order.push_back(name);
    }
  }

  // Costs of the whole graph, or null.
  const price::MeasuredCosts* costs_;
  std::map<std::string, Member> member_of_;
};

struct OverlapCommand {
  static constexpr const char* kName = "overlap";
  static constexpr const char* kSummary =
      "Overlap bucketed collectives with compute within a memory limit";
  static constexpr const char* kNote =
      "Matrix products and attention keep their order; other ops move to where they hide or feed "
      "a collective. docs/overlap.md describes schedules, buckets and files of measured times.";
  static constexpr const char* kExamples =
      "heddle overlap final.hd --cluster=h100-8x -o overlapped.hd\n"
      "heddle overlap final.hd --memory=+1GiB --html=overlap.html";

  std::string file;
  SimFlags sim;
  SimOutputs outputs;
  std::string memory;
  std::string buckets = "auto";
  compile::Effort effort = compile::Effort::kNormal;
  bool reorder_compute = false;
  bool strict = false;
  bool async_tensor_parallel = false;
  bool remarks = false;
  std::string output;
  std::string schedule;

  void Declare(Flags& flags) {
    flags.Positional("FILE", file, "graph of one rank, or - for standard input");
    flags.Section("Schedule");
    flags.Option("--memory", memory,
                 "memory limit of the schedule: 5GiB, or +1GiB above the peak of the given order "
                 "(default: that peak)");
    flags.Option(
        "--buckets", buckets,
        "buckets of weight gathers and gradient reductions: auto, none, or a maximum size, "
        "as in 25MiB");
    flags.Choice<compile::Effort>("--effort", effort, "search effort: fast, normal or best",
                                  {{"fast", compile::Effort::kFast},
                                   {"normal", compile::Effort::kNormal},
                                   {"best", compile::Effort::kBest}});
    flags.Switch("--reorder-compute", reorder_compute,
                 "allow matrix products and attention to be reordered: weight gradients run later, "
                 "where compute would be idle");
    flags.Switch("--strict", strict,
                 "keep the order of collectives and of compute, and merge nothing");
    flags.Switch("--async-tensor-parallel", async_tensor_parallel,
                 "split exposed tensor-parallel collectives and the ops around them into chunks "
                 "where that shortens the step");
    flags.Section("Output");
    flags.Option("-o,--output=FILE", output, "write the graph to this file");
    flags.Option("--schedule=FILE", schedule,
                 "write the order of node names and the members of buckets to this file as JSON");
    flags.Switch("--remarks", remarks,
                 "print why each exposed collective is not hidden, and which ops moved");
    sim.Declare(flags, false);
    outputs.Declare(flags);
  }

  Status Run(const Streams& streams) const;

 private:
  Result<compile::OverlapOptions> Options() const;
  // Divides collectives into chunks. Adds the times of the new nodes to `model`.
  Status CutInChunks(Module& module, const price::SimulateOptions& sim_options,
                     compile::OverlapOptions& options, price::CostModel& model) const;
  Status WriteFiles(const Module& before, const Module& after, const price::CostModel& model,
                    const Streams& streams) const;
};

Result<compile::OverlapOptions> OverlapCommand::Options() const {
  compile::OverlapOptions options;
  HEDDLE_TRY(options.memory, compile::ParsePeakLimit(memory));
  HEDDLE_TRY(options.buckets, compile::ParseBucketRule(buckets));
  options.effort = effort;
  options.reorder_compute = reorder_compute;
  options.strict = strict;
  return options;
}

// Costs of a whole graph must have the nodes of the graph, except for tensors that an import
// creates from numbers.
Status CheckCosts(const price::CostModel& model, const search::SimulatedModule& before) {
  if (model.measured() == nullptr || !model.measured()->whole_graph) return Done{};
  auto wrong = [&](size_t count, std::string_view name, std::string_view where) {
    Failure failure = Error(Diag::kCostsFile,
                            "{} {}, the first is %{}; check that the file belongs to this graph",
                            Counted(static_cast<int64_t>(count), "node"), where, name);
    failure.diagnostics[0].file = model.measured()->file;
    return failure;
  };
  for (size_t i = 0; i < before.simulations.size(); ++i) {
    const price::GraphCosts& costs = before.simulations[i].costs;
    const std::vector<std::string>& unknown = costs.measured.unknown_nodes;
    if (!unknown.empty())
      return wrong(unknown.size(), unknown[0], "of the file are not in the graph");
    const Graph& graph = before.module.graphs[i];
    size_t missing = 0;
    NodeId first;
    for (NodeId id : graph.nodes()) {
      if (costs.nodes[id].measured || graph[id].op == op::scalar_tensor) continue;
      if (missing++ == 0) first = id;
    }
    if (missing > 0)
      return wrong(missing, graph.name(graph[first].first_result), "of the graph have no costs");
  }
  return Done{};
}

Status OverlapCommand::CutInChunks(Module& module, const price::SimulateOptions& sim_options,
                                   compile::OverlapOptions& options,
                                   price::CostModel& model) const {
  if (!async_tensor_parallel) return Done{};
  if (module.graphs.size() != 1)
    return Error(Diag::kUsage, "--async-tensor-parallel needs one graph, but the module has {}",
                 module.graphs.size());
  Graph& graph = module.graphs[0];
  // The memory limit is that of the given graph.
  HEDDLE_TRY(price::GraphCosts costs, model.Price(module, graph));
  price::SimGraph sim_graph(graph, costs, sim_options.memory);
  Bytes peak = price::Replay(sim_graph, price::TimelineOptions(model, sim_options)).outcome().peak;
  compile::AsyncOptions async;
  async.overlap = options;
  HEDDLE_TRY(compile::AsyncResult result,
             compile::AsyncTensorParallel(module, graph, model, sim_options, async));
  options.memory = {options.memory.Of(peak), false};
  HEDDLE_TRY(model, compile::WithTimes(model, result.times));
  return Done{};
}

Status OverlapCommand::Run(const Streams& streams) const {
  HEDDLE_RETURN_IF_ERROR(outputs.Check());
  if (async_tensor_parallel && (strict || !schedule.empty()))
    return Error(
        Diag::kUsage, "--async-tensor-parallel creates nodes, but {}",
        strict ? "--strict keeps collectives as they are" : "--schedule lists nodes of FILE");
  HEDDLE_TRY(compile::OverlapOptions options, Options());
  HEDDLE_TRY(price::CostModel model, sim.Load());
  HEDDLE_TRY(price::SimulateOptions sim_options, sim.Options());
  if (model.options().rules.packing == price::TimelineRules::Packing::kByKernels)
    sim_options.memory = {.inputs = price::InputMemory::kFreed, .packed_copies = true};
  HEDDLE_TRY(Module module, LoadModule(file, streams));
  HEDDLE_TRY(search::SimulatedModule before,
             search::SimulateModule(InputName(file), module, model, sim_options));
  HEDDLE_RETURN_IF_ERROR(CheckCosts(model, before));
  HEDDLE_RETURN_IF_ERROR(CutInChunks(module, sim_options, options, model));
  std::vector<Bytes> caps;
  for (Graph& graph : module.graphs) {
    compile::PassContext context(module.mesh);
    HEDDLE_TRY(compile::OverlapResult result,
               compile::Overlap(module, graph, model, sim_options, options, context));
    caps.push_back(result.cap);
    if (!remarks) continue;
    for (const compile::Remark& remark : context.remarks()) streams.err << Format(remark) << "\n";
  }
  search::SimulatedModule after{InputName(file) + ", overlapped", std::move(module)};
  for (size_t i = 0; i < caps.size(); ++i) {
    sim_options.memory_cap = caps[i];
    HEDDLE_TRY(price::Simulation one,
               price::Simulate(after.module, after.module.graphs[i], model, sim_options));
    after.simulations.push_back(std::move(one));
  }
  // Merged nodes have no names of their own, so their costs are unused without an error.
  for (size_t i = 0; i < after.simulations.size(); ++i)
    after.simulations[i].costs.measured.unknown_nodes =
        before.simulations[i].costs.measured.unknown_nodes;
  HEDDLE_RETURN_IF_ERROR(WriteFiles(before.module, after.module, model, streams));
  SimOutputs rest = outputs;
  if (outputs.json) {
    auto list = ordered_json::array();
    for (size_t i = 0; i < after.simulations.size(); ++i) {
      auto one = [&](const search::SimulatedModule& m) {
        const price::Simulation& s = m.simulations[i];
        ordered_json json = ToJson(m.module, m.module.graphs[i], model, s);
        json["launches"] = s.timeline.collectives.size();
        return json;
      };
      list.push_back({{"before", one(before)}, {"after", one(after)}});
    }
    PrintJson(list.size() == 1 ? list[0] : list, streams);
    rest.json = false;
    if (rest.html.empty() && rest.trace.empty()) return Done{};
  }
  std::vector<search::SimulatedModule> both;
  both.push_back(std::move(before));
  both.push_back(std::move(after));
  return outputs.json ? rest.WriteFiles(both, model, streams) : rest.Write(both, model, streams);
}

Status OverlapCommand::WriteFiles(const Module& before, const Module& after,
                                  const price::CostModel& model, const Streams& streams) const {
  if (!output.empty()) HEDDLE_RETURN_IF_ERROR(WriteOutput(output, Print(after), streams));
  if (schedule.empty()) return Done{};
  if (after.graphs.size() != 1)
    return Error(Diag::kUsage, "--schedule needs one graph, but the module has {}",
                 after.graphs.size());
  ordered_json json = ScheduleWriter(before.graphs[0], model.measured()).Write(after.graphs[0]);
  return WriteOutput(
      schedule, json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n", streams);
}

}  // namespace

void AddOverlap(CommandSet& commands) { commands.Add<OverlapCommand>(); }

}  // namespace heddle
