#include "heddle/run/train/run_memory.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "heddle/core/analysis/memory.h"
#include "heddle/core/ir/program.h"

namespace heddle::run {
namespace {

// Graphs of a run share the tensors with equal keys.
using StateKey = std::tuple<InputRole, int64_t, std::string>;
using StateBytes = std::map<StateKey, Bytes>;

// Returns the inputs that exist as long as the session: all but batches and gradients.
StateBytes StateInputs(const Graph& graph, bool with_host) {
  StateBytes state;
  for (const Input& input : graph.inputs()) {
    bool gradient = input.role == InputRole::kOpt && input.label == "grad";
    if (input.role == InputRole::kBatch || gradient) continue;
    TypeId type = graph.type(input.value);
    if (!with_host && graph.types().space(type) == Space::kHost) continue;
    state[{input.role, input.index, input.label}] = graph.types().bytes(type);
  }
  return state;
}

Bytes Sum(const StateBytes& state) {
  Bytes sum;
  for (const auto& [key, bytes] : state) sum += bytes;
  return sum;
}

GraphPeak PeakOf(const Graph& graph, bool with_host) {
  Liveness liveness(graph);
  MemoryTimeline device = ComputeMemoryTimeline(graph, liveness);
  std::vector<std::pair<std::string, Bytes>> largest;
  for (StorageId id : device.alive_at_peak) {
    const Storage& storage = liveness.storages()[id];
    if (storage.birth) largest.emplace_back(graph.name(storage.value), storage.bytes);
  }
  if (!with_host) return {device.peak, std::move(largest)};
  MemoryTimeline host = ComputeMemoryTimeline(graph, liveness, Space::kHost);
  Bytes peak = device.inputs + host.inputs;
  for (size_t i = 0; i < device.live.size(); ++i)
    peak = std::max(peak, device.live[i] + host.live[i]);
  return {peak, std::move(largest)};
}

// Returns the bytes that Session::Remember copies.
Bytes UpdatedState(const Graph& step) {
  std::map<ValueId, bool> updated;
  for (const Output& output : step.outputs()) {
    if (output.role == OutputRole::kUpdate) updated[output.target] = true;
  }
  Bytes sum;
  for (const Input& input : step.inputs()) {
    bool moment = input.role == InputRole::kOpt && input.label != "grad";
    bool buffer = input.role == InputRole::kBuffer && updated.contains(input.value) &&
                  !CountsBatches(input.label);
    if (input.role == InputRole::kParam || moment || buffer)
      sum += step.types().bytes(step.type(input.value));
  }
  return sum;
}

}  // namespace

namespace {

// Memory of the ranks that run one graph of each module. The first graph is that of the step.
RunMemory MemoryOf(const std::vector<const Graph*>& graphs, bool remembers, bool with_host,
                   const std::function<GraphPeak(const Graph&)>& peak_of) {
  StateBytes all;
  for (const Graph* graph : graphs) all.merge(StateInputs(*graph, with_host));
  RunMemory memory;
  memory.state = Sum(all);
  for (const Graph* graph : graphs) {
    GraphPeak peak = peak_of ? peak_of(*graph) : PeakOf(*graph, with_host);
    if (graph == graphs[0]) memory.state += peak.copies;
    // State that is not an input of this graph also stays allocated.
    Bytes others = memory.state - Sum(StateInputs(*graph, with_host)) - peak.copies;
    if (peak.bytes + others <= memory.peak) continue;
    memory.peak = peak.bytes + others;
    memory.largest = std::move(peak.largest);
  }
  if (remembers) {
    Bytes copy = UpdatedState(*graphs[0]);
    memory.state += copy;
    memory.peak += copy;
  }
  return memory;
}

}  // namespace

std::vector<RunMemory> MemoryOfRun(const StepModules& modules, bool remembers, bool with_host,
                                   const std::function<GraphPeak(const Graph&)>& peak_of) {
  size_t programs = ProgramAxis(*modules.step) ? modules.step->graphs.size() : 1;
  std::vector<RunMemory> memory;
  for (size_t at = 0; at < programs; ++at) {
    std::vector<const Graph*> graphs;
    for (const Module* module : {modules.step, modules.first, modules.more, modules.forward}) {
      if (module != nullptr) graphs.push_back(&module->graphs[at]);
    }
    memory.push_back(MemoryOf(graphs, remembers, with_host, peak_of));
  }
  return memory;
}

}  // namespace heddle::run
