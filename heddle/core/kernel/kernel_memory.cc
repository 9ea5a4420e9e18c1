#include "heddle/core/kernel/kernel_memory.h"

#include <algorithm>

#include "heddle/core/analysis/liveness.h"
#include "heddle/core/kernel/element.h"
#include "heddle/core/kernel/loss.h"
#include "heddle/core/kernel/program.h"
#include "heddle/core/kernel/runs.h"
#include "heddle/core/kernel/weight_copies.h"

namespace heddle {
namespace {

class MemoryOfLaunches {
 public:
  explicit MemoryOfLaunches(ArrangedGraph arranged)
      : arranged_(std::move(arranged)),
        graph_(arranged_.graph),
        uses_(graph_),
        liveness_(graph_),
        inside_(graph_.value_count()),
        bytes_(liveness_.storages().size()),
        end_(liveness_.storages().size()),
        launch_(graph_.node_count()) {
    for (NodeId node : graph_.nodes()) launch_[node.index()] = {node.index(), node.index()};
    for (size_t g = 0; g < arranged_.groups.size(); ++g) TakeGroup(g);
    TakeOptimizer();
    for (StorageId id : liveness_.storages().ids()) {
      const Storage& storage = liveness_.storages()[id];
      bytes_[id.index()] =
          storage.space == Space::kDevice && !IsInside(storage) ? storage.bytes : Bytes();
      end_[id.index()] =
          storage.death ? launch_[storage.death.index()].second : graph_.node_count();
    }
    for (NodeId node : graph_.nodes()) TakeLoss(node);
    TakeCopies();
  }

  KernelMemory Peak() const {
    Bytes inputs = Inputs();
    KernelMemory memory{inputs + copies_, inputs, copies_, CopiedParams(arranged_), Kept(), {}};
    std::vector<Bytes> live = Timeline();
    size_t at = 0;
    for (size_t i = 0; i < live.size(); ++i) {
      if (live[i] <= memory.peak) continue;
      memory.peak = live[i];
      at = i;
    }
    for (StorageId id : liveness_.storages().ids()) {
      const Storage& storage = liveness_.storages()[id];
      bool alive = storage.birth && Begin(storage) <= at && at <= end_[id.index()];
      if (alive && bytes_[id.index()].value > 0)
        memory.largest.emplace_back(graph_.name(storage.value), bytes_[id.index()]);
    }
    std::ranges::stable_sort(memory.largest, std::ranges::greater(),
                             [](const auto& entry) { return entry.second; });
    return memory;
  }

  std::set<int64_t> CopiesWithinPeak() const {
    std::vector<std::pair<Bytes, int64_t>> by_size;
    std::map<int64_t, std::vector<NodeId>> casts = CastsOfUpdatedParams(arranged_);
    for (const auto& [param, nodes] : casts) {
      ValueId cast = graph_[nodes.front()].first_result;
      by_size.emplace_back(graph_.types().bytes(graph_.type(cast)), param);
    }
    std::ranges::stable_sort(by_size, std::ranges::greater(), &std::pair<Bytes, int64_t>::first);
    std::vector<Bytes> live = Timeline();
    if (live.empty()) return {};
    Bytes peak = std::ranges::max(live);
    std::set<int64_t> chosen;
    for (const auto& [bytes, param] : by_size) {
      std::vector<Bytes> with = live;
      for (Bytes& at : with) at += bytes;
      for (NodeId cast : casts.at(param)) {
        StorageId id = liveness_.of(graph_[cast].first_result);
        size_t end = std::min(end_[id.index()], with.size() - 1);
        for (size_t i = Begin(liveness_.storages()[id]); i <= end; ++i) with[i] -= bytes;
      }
      if (std::ranges::max(with) > peak) continue;
      live = std::move(with);
      chosen.insert(param);
    }
    return chosen;
  }

 private:
  Bytes Inputs() const {
    Bytes inputs;
    for (StorageId id : liveness_.storages().ids()) {
      if (!liveness_.storages()[id].birth) inputs += bytes_[id.index()];
    }
    return inputs;
  }

  // The memory at each node.
  std::vector<Bytes> Timeline() const {
    std::vector<Bytes> live(graph_.node_count() + 1);
    for (StorageId id : liveness_.storages().ids()) {
      const Storage& storage = liveness_.storages()[id];
      if (!storage.birth) continue;
      live[Begin(storage)] += bytes_[id.index()];
      if (end_[id.index()] < graph_.node_count()) live[end_[id.index()] + 1] -= bytes_[id.index()];
    }
    live.pop_back();
    Bytes now = Inputs() + copies_;
    for (Bytes& at : live) at = now += at;
    return live;
  }

  Bytes Kept() const {
    NodeId last;
    for (NodeId id : graph_.nodes()) {
      if (graph_[id].phase == Phase::kForward) last = id;
    }
    Bytes kept;
    for (StorageId id : liveness_.storages().ids()) {
      const Storage& storage = liveness_.storages()[id];
      bool made = last && storage.birth && Begin(storage) <= last.index();
      if (made && last.index() < end_[id.index()]) kept += bytes_[id.index()];
    }
    return kept;
  }

  size_t Begin(const Storage& storage) const { return launch_[storage.birth.index()].first; }
  bool IsInside(const Storage& storage) const {
    NodeId producer = graph_[storage.value].producer;
    return producer && inside_[storage.value.index()];
  }
  void Launch(NodeId first, size_t count) {
    for (size_t i = 0; i < count; ++i)
      launch_[first.index() + i] = {first.index(), first.index() + count - 1};
  }

  void TakeGroup(size_t g) {
    const KernelGroup& group = arranged_.groups[g];
    Launch(group.nodes.front(), group.nodes.size());
    if (group.form == KernelGroup::Form::kCasts) return;
    StoredValues values = StoredValuesOf(graph_, uses_, arranged_.groups, g);
    for (NodeId node : group.nodes) {
      if (IsFlatView(graph_, node)) continue;
      for (ValueId result : graph_.results(node)) inside_[result.index()] = true;
    }
    for (ValueId value : values.stored) inside_[value.index()] = false;
    if (values.weight) inside_[values.weight->result.index()] = false;
  }

  // Values that do not exist: casts that do not run, and clipped gradients.
  void TakeOptimizer() {
    OptimizerRuns runs = FindOptimizerRuns(graph_, uses_);
    for (NodeId cast : SparedCasts(graph_, uses_, runs))
      inside_[graph_[cast].first_result.index()] = true;
    for (const auto& [first, run] : runs.updates) {
      Launch(first, run.count);
      for (size_t i = 0; i < run.count; ++i) {
        NodeId node(first.index() + i);
        if (graph_.op(node).effect() != Effect::kUpdate)
          inside_[graph_[node].first_result.index()] = true;
      }
    }
  }

  // The gradient of the logits may overwrite them.
  void TakeLoss(NodeId first) {
    std::optional<LossRun> run = FindLossRun(graph_, uses_, liveness_, first);
    if (!run) return;
    StorageId gradient = liveness_.of(graph_[run->gradient].first_result);
    for (size_t i = 0; i < run->count; ++i) {
      NodeId node(first.index() + i);
      if (graph_.op(node).effect() == Effect::kView) continue;
      for (ValueId result : graph_.results(node)) {
        StorageId id = liveness_.of(result);
        if (id != gradient && result != graph_[run->forward].first_result)
          bytes_[id.index()] = Bytes();
      }
    }
    if (!run->in_place) return;
    StorageId logits = liveness_.of(run->logits);
    end_[logits.index()] = std::max(end_[logits.index()], end_[gradient.index()]);
    bytes_[gradient.index()] = Bytes();
  }

  // Several casts of one parameter have the same copy.
  void TakeCopies() {
    std::set<int64_t> params;
    for (const auto& [cast, param] : arranged_.copied) {
      Bytes& bytes = bytes_[liveness_.of(graph_[cast].first_result).index()];
      if (params.insert(param).second) copies_ += bytes;
      bytes = Bytes();
    }
  }

  ArrangedGraph arranged_;
  const Graph& graph_;
  Uses uses_;
  Liveness liveness_;
  // By value: whether it exists in registers only.
  std::vector<bool> inside_;
  // By storage: its bytes, and the last node that needs it (the number of nodes for outputs).
  std::vector<Bytes> bytes_;
  std::vector<size_t> end_;
  // By node: the first and last node of its launch.
  std::vector<std::pair<size_t, size_t>> launch_;
  Bytes copies_;
};

}  // namespace

KernelMemory MemoryWithKernels(const Graph& graph, const std::optional<std::set<int64_t>>& copies) {
  return MemoryOfLaunches(ArrangeStep(graph, copies)).Peak();
}

std::set<int64_t> CopiesWithinPeak(const ArrangedGraph& step) {
  if (CastsOfUpdatedParams(step).empty()) return {};
  return MemoryOfLaunches(step).CopiesWithinPeak();
}

}  // namespace heddle
