#include "heddle/core/kernel/runs.h"

#include <algorithm>
#include <set>

#include "heddle/core/kernel/kernel_memory.h"
#include "heddle/core/kernel/loss.h"
#include "heddle/core/kernel/node_facts.h"
#include "heddle/core/kernel/weight_copies.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

// Returns the update at `node`, before its gradient is examined; nullopt if the kernel does not
// support it.
std::optional<AdamWRun> UpdateAt(const Graph& graph, const Uses& uses, NodeId node) {
  if (graph[node].op != op::_fused_adamw_tensor_lr) return {};
  std::span<const ValueId> operands = graph.operands(node);
  // Lists of one tensor each: param, grad, exp_avg, exp_avg_sq, step; then lr and absent operands.
  if (operands.size() != 8 || operands[6] || operands[7] || graph[node].result_count != 4)
    return {};
  for (size_t i = 0; i < 6; ++i) {
    if (!operands[i] || graph.types().dtype(graph.type(operands[i])) != DType::kF32 ||
        graph.types().space(graph.type(operands[i])) != Space::kDevice)
      return {};
  }
  // The gradient is returned unchanged.
  if (!uses.unused(ValueId(graph[node].first_result.index() + 1))) return {};
  if (AttrOf(graph, node, "amsgrad", true) || AttrOf(graph, node, "maximize", true)) return {};
  return AdamWRun{.count = 1,
                  .updates = {{node, operands[0], operands[1], operands[2], operands[3]}},
                  .lr = operands[5],
                  .step = operands[4],
                  .clip = ValueId(),
                  .beta1 = AttrOf(graph, node, "beta1", 0.0),
                  .beta2 = AttrOf(graph, node, "beta2", 0.0),
                  .weight_decay = AttrOf(graph, node, "weight_decay", 0.0),
                  .eps = AttrOf(graph, node, "eps", 0.0)};
}

// Whether it computes the squared norms of f32 tensors, in order.
bool IsNormOfGradients(const Graph& graph, NodeId node) {
  if (graph[node].op != op::heddle_squared_norm) return false;
  const AttrValue* places = graph.attrs(node).Find("places");
  const auto* list = places == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(places);
  if (list != nullptr && !list->empty()) return false;
  return std::ranges::all_of(graph.operands(node), [&](ValueId operand) {
    return operand && graph.types().dtype(graph.type(operand)) == DType::kF32 &&
           graph.types().space(graph.type(operand)) == Space::kDevice;
  });
}

// Whether `node` multiplies a gradient by a scalar, and only the next node, an update, reads the
// product.
bool ClipsNext(const Graph& graph, const Uses& uses, NodeId node) {
  if (graph[node].op != op::mul_Tensor) return false;
  std::span<const ValueId> operands = graph.operands(node);
  ValueId result = graph[node].first_result;
  return !uses.is_output(result) && uses.of(result).size() == 1 &&
         uses.of(result)[0].node.index() == node.index() + 1 && uses.of(result)[0].operand == 1 &&
         graph.types().dtype(graph.type(operands[0])) == DType::kF32 &&
         graph.types().dtype(graph.type(operands[1])) == DType::kF32 &&
         graph.types().dims(graph.type(operands[1])).empty() &&
         graph.types().space(graph.type(operands[1])) == Space::kDevice;
}

}  // namespace

std::optional<AdamWRun> FindAdamWRun(const Graph& graph, const Uses& uses, NodeId first) {
  std::optional<AdamWRun> run;
  for (size_t at = first.index(); at < graph.node_count();) {
    bool clips = ClipsNext(graph, uses, NodeId(at));
    size_t update = at + (clips ? 1 : 0);
    if (update >= graph.node_count()) break;
    std::optional<AdamWRun> next = UpdateAt(graph, uses, NodeId(update));
    if (!next) break;
    if (clips) {
      next->clip = graph.operands(NodeId(at))[1];
      next->updates[0].grad = graph.operands(NodeId(at))[0];
    }
    if (!run) {
      run = next;
    } else {
      auto numbers = [](const AdamWRun& r) {
        return std::tuple(r.lr, r.step, r.clip, r.beta1, r.beta2, r.weight_decay, r.eps);
      };
      if (numbers(*run) != numbers(*next)) break;
      run->updates.push_back(next->updates[0]);
    }
    at = update + 1;
    run->count = at - first.index();
  }
  return run && run->updates.size() > 1 ? run : std::nullopt;
}

OptimizerRuns FindOptimizerRuns(const Graph& graph, const Uses& uses) {
  OptimizerRuns runs;
  for (uint32_t next = 0; next < graph.node_count();) {
    NodeId node(next++);
    if (IsNormOfGradients(graph, node)) runs.norms.insert(node);
    std::optional<AdamWRun> run = FindAdamWRun(graph, uses, node);
    if (!run) continue;
    next = node.index() + static_cast<uint32_t>(run->count);
    runs.updates.emplace(node, *std::move(run));
  }
  return runs;
}

Graph ReturnNarrowGradients(Graph graph) {
  Uses uses(graph);
  for (Output& output : graph.mutable_outputs()) {
    NodeId cast = graph[output.value].producer;
    if (output.role != OutputRole::kGrad || !cast ||
        !IsPlainCast(graph, cast, DType::kBF16, DType::kF32))
      continue;
    std::span<const Use> readers = uses.of(output.value);
    bool of_optimizer = std::ranges::all_of(readers, [&](const Use& use) {
      return IsNormOfGradients(graph, use.node) || ClipsNext(graph, uses, use.node) ||
             (graph[use.node].op == op::_fused_adamw_tensor_lr && use.operand == 1);
    });
    if (!readers.empty() && of_optimizer) output.value = graph.operands(cast)[0];
  }
  return graph;
}

std::set<NodeId> SparedCasts(const Graph& graph, const Uses& uses, const OptimizerRuns& runs) {
  std::set<NodeId> readers = runs.norms;
  for (const auto& [first, run] : runs.updates) {
    for (size_t i = 0; i < run.count; ++i) readers.emplace(first.index() + i);
  }
  std::set<NodeId> spared;
  for (NodeId node : graph.nodes()) {
    if (!IsPlainCast(graph, node, DType::kBF16, DType::kF32)) continue;
    ValueId result = graph[node].first_result;
    // As an output, the operand exists until the updates.
    if (!uses.is_output(graph.operands(node)[0]) || uses.unused(result) || uses.is_output(result))
      continue;
    if (std::ranges::all_of(uses.of(result),
                            [&](const Use& use) { return readers.contains(use.node); }))
      spared.insert(node);
  }
  return spared;
}

ValueId BeforeCast(const Graph& graph, const std::set<NodeId>& spared, ValueId value) {
  NodeId producer = graph[value].producer;
  return producer && spared.contains(producer) ? graph.operands(producer)[0] : value;
}

ArrangedGraph ArrangeStep(const Graph& graph, const std::optional<std::set<int64_t>>& copies) {
  Graph narrow = GatherLosses(ReturnNarrowGradients(graph));
  Uses uses(narrow);
  Liveness liveness(narrow);
  std::vector<bool> fixed = NodesOfLosses(narrow, uses, liveness);
  ArrangedGraph arranged = ArrangeForKernels(std::move(narrow), uses, liveness, fixed);
  std::set<int64_t> params = copies ? *copies : CopiesWithinPeak(arranged);
  if (params.empty()) return arranged;
  for (const auto& [param, casts] : CastsOfParams(arranged)) {
    for (NodeId cast : casts) {
      if (params.contains(param)) arranged.copied.emplace(cast, param);
    }
  }
  return arranged;
}

}  // namespace heddle
