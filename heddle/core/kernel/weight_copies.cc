#include "heddle/core/kernel/weight_copies.h"

#include <algorithm>

#include "heddle/core/analysis/liveness.h"
#include "heddle/core/kernel/loss.h"
#include "heddle/core/kernel/runs.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

bool IsCastOfParam(const Graph& graph, NodeId node) {
  if (graph[node].op != op::_to_copy || graph.attrs(node).list.size() != 1) return false;
  ValueId param = graph.operands(node)[0];
  TypeId from = graph.type(param);
  TypeId to = graph.type(graph[node].first_result);
  return ParamOf(graph, param) && graph.types().dtype(from) == DType::kF32 &&
         graph.types().dtype(to) == DType::kBF16 && graph.types().space(from) == Space::kDevice &&
         graph.types().space(to) == Space::kDevice &&
         std::ranges::none_of(graph.types().dims(from), IsSymbol);
}

// Storages that nodes or kernels write to after they exist.
std::set<StorageId> WrittenStorages(const Graph& graph, const Liveness& liveness) {
  std::set<StorageId> written;
  Uses uses(graph);
  for (NodeId node : graph.nodes()) {
    std::optional<LossRun> loss = FindLossRun(graph, uses, liveness, node);
    if (loss && loss->in_place) written.insert(liveness.of(loss->logits));
    if (graph.op(node).effect() != Effect::kUpdate) continue;
    for (ValueId operand : graph.operands(node)) {
      if (operand) written.insert(liveness.of(operand));
    }
  }
  return written;
}

}  // namespace

std::optional<int64_t> ParamOf(const Graph& graph, ValueId value) {
  if (graph[value].producer) return std::nullopt;
  // The first values are the inputs.
  const Input& input = graph.inputs()[value.index()];
  return input.role == InputRole::kParam ? std::optional(input.index) : std::nullopt;
}

std::map<int64_t, std::vector<NodeId>> CastsOfParams(const ArrangedGraph& arranged) {
  const Graph& graph = arranged.graph;
  // A generated kernel computes the cast in registers.
  std::set<NodeId> generated;
  for (const KernelGroup& group : arranged.groups) {
    if (group.form != KernelGroup::Form::kCasts)
      generated.insert(group.nodes.begin(), group.nodes.end());
  }
  Liveness liveness(graph);
  std::set<StorageId> written = WrittenStorages(graph, liveness);
  std::map<int64_t, std::vector<NodeId>> casts;
  for (NodeId node : graph.nodes()) {
    if (!IsCastOfParam(graph, node) || generated.contains(node)) continue;
    StorageId storage = liveness.of(graph[node].first_result);
    // Outputs belong to the caller.
    if (!liveness.storages()[storage].death || written.contains(storage)) continue;
    casts[*ParamOf(graph, graph.operands(node)[0])].push_back(node);
  }
  return casts;
}

std::map<int64_t, std::vector<NodeId>> CastsOfUpdatedParams(const ArrangedGraph& step) {
  std::map<int64_t, std::vector<NodeId>> casts = CastsOfParams(step);
  std::map<int64_t, std::vector<NodeId>> updated;
  for (const auto& [first, run] : FindOptimizerRuns(step.graph, Uses(step.graph)).updates) {
    for (const AdamWRun::Update& update : run.updates) {
      std::optional<int64_t> param = ParamOf(step.graph, update.param);
      auto found = param ? casts.find(*param) : casts.end();
      if (found != casts.end() && found->second.back() < first) updated.insert(*found);
    }
  }
  return updated;
}

std::set<int64_t> CopiedParams(const ArrangedGraph& arranged) {
  std::set<int64_t> params;
  for (const auto& [cast, param] : arranged.copied) params.insert(param);
  return params;
}

}  // namespace heddle
