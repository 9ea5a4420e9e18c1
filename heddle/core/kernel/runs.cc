#include "heddle/core/kernel/runs.h"

#include <algorithm>
#include <set>

#include "heddle/core/kernel/kernel_memory.h"
#include "heddle/core/kernel/weight_copies.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

template <typename T>
T AttrOf(const Graph& graph, NodeId node, std::string_view name, T otherwise) {
  const AttrValue* value = graph.attrs(node).Find(name);
  const T* found = value == nullptr ? nullptr : std::get_if<T>(value);
  return found == nullptr ? otherwise : *found;
}

bool IsPlainCast(const Graph& graph, NodeId node, DType from, DType to) {
  return graph[node].op == op::_to_copy &&
         graph.types().dtype(graph.type(graph.operands(node)[0])) == from &&
         graph.types().dtype(graph.type(graph[node].first_result)) == to;
}

// Ops whose result depends only on the shape of their operand.
bool ReadsShapeAlone(OpId op) { return op == op::ones_like || op == op::zeros_like; }

class LossFinder {
 public:
  LossFinder(const Graph& graph, const Uses& uses, const Liveness& liveness)
      : graph_(graph), uses_(uses), liveness_(liveness) {}

  std::optional<LossRun> Find(NodeId first) {
    if (!IsPlainCast(graph_, first, DType::kBF16, DType::kF32) || !FindMembers(first)) return {};
    run_.count = run_.gradient.index() - first.index() + 1;
    run_.logits = graph_.operands(first)[0];
    if (!SortOthers(first)) return {};
    StorageId storage = liveness_.of(run_.logits);
    const Storage& logits = liveness_.storages()[storage];
    // Ranks of one process may share the result of a collective.
    run_.in_place = logits.birth && graph_.op(logits.birth).name().starts_with("aten.") &&
                    logits.death && logits.death <= run_.gradient;
    return run_;
  }

 private:
  // Returns the only consumer of a value; invalid if there are others.
  NodeId OnlyUser(ValueId value) const {
    return uses_.of(value).size() == 1 && !uses_.is_output(value) ? uses_.of(value)[0].node
                                                                  : NodeId();
  }
  // Returns the only consumer after views, which become members.
  NodeId UserBehindViews(ValueId value) {
    NodeId user = OnlyUser(value);
    while (user && graph_[user].op == op::view) {
      members_.insert(user);
      user = OnlyUser(graph_[user].first_result);
    }
    return user;
  }

  // Finds the nodes of the kernel. Sets the fields of the run that follow from them.
  bool FindMembers(NodeId first) {
    members_ = {first};
    NodeId softmax = UserBehindViews(graph_[first].first_result);
    if (!softmax || graph_[softmax].op != op::_log_softmax) return false;
    ValueId logp = graph_[softmax].first_result;
    std::span<const Dim> dims = graph_.types().dims(graph_.type(logp));
    if (dims.size() != 2 || std::ranges::any_of(dims, IsSymbol)) return false;
    int64_t dim = AttrOf<int64_t>(graph_, softmax, "dim", 0);
    if ((dim != 1 && dim != -1) || uses_.of(logp).size() != 3 || uses_.is_output(logp))
      return false;
    NodeId nll, nll_backward, backward;
    for (const Use& use : uses_.of(logp)) {
      OpId op = graph_[use.node].op;
      if (op == op::nll_loss_forward) nll = use.node;
      if (op == op::nll_loss_backward) nll_backward = use.node;
      if (op == op::_log_softmax_backward_data) backward = use.node;
    }
    if (!nll || !nll_backward || !backward || !IsPlainSum(nll) || !IsPlainSum(nll_backward))
      return false;
    std::span<const ValueId> forward = graph_.operands(nll);
    std::span<const ValueId> grads = graph_.operands(nll_backward);
    ValueId weight(graph_[nll].first_result.index() + 1);
    // Operands: (self, target, weight); (grad_output, self, target, weight, total_weight).
    bool same = forward[0] == logp && grads[1] == logp && grads[2] == forward[1] &&
                grads[4] == weight && OnlyUser(weight) == nll_backward &&
                graph_.types().dtype(graph_.type(forward[1])) == DType::kI64 &&
                AttrOf<int64_t>(graph_, nll, "ignore_index", 0) ==
                    AttrOf<int64_t>(graph_, nll_backward, "ignore_index", 1);
    bool chained = OnlyUser(graph_[nll_backward].first_result) == backward &&
                   graph_.operands(backward)[0] == graph_[nll_backward].first_result &&
                   graph_.operands(backward)[1] == logp;
    if (!same || !chained) return false;
    for (NodeId node : {softmax, nll, nll_backward, backward}) members_.insert(node);
    NodeId cast = UserBehindViews(graph_[backward].first_result);
    if (!cast || !IsPlainCast(graph_, cast, DType::kF32, DType::kBF16)) return false;
    members_.insert(cast);
    run_.labels = forward[1];
    run_.scale = grads[0];
    run_.forward = nll;
    run_.gradient = cast;
    run_.rows = dims[0];
    run_.columns = dims[1];
    run_.ignored = AttrOf<int64_t>(graph_, nll, "ignore_index", 0);
    return true;
  }

  // Whether it is a sum without class weights.
  bool IsPlainSum(NodeId nll) const {
    size_t weight = graph_[nll].op == op::nll_loss_forward ? 2 : 3;
    return AttrOf<int64_t>(graph_, nll, "reduction", 0) == 2 && !graph_.operands(nll)[weight];
  }

  // Moves the nodes between those of the kernel before or after it. Fails if the scale depends on
  // the loss, or if a node is not ATen's.
  bool SortOthers(NodeId first) {
    std::set<ValueId> of_loss = {graph_[run_.forward].first_result};
    for (size_t i = first.index(); i <= run_.gradient.index(); ++i) {
      NodeId node(i);
      if (members_.contains(node)) continue;
      std::string_view name = graph_.op(node).name();
      if (!name.starts_with("aten.") || graph_.op(node).effect() == Effect::kRandom ||
          graph_.op(node).effect() == Effect::kUpdate)
        return false;
      std::vector<ValueId> late;
      for (ValueId operand : graph_.operands(node)) {
        if (operand && of_loss.contains(operand)) late.push_back(operand);
      }
      bool before = late.empty() || ReadsShapeAlone(graph_[node].op);
      (before ? run_.before : run_.after).push_back(node);
      if (before) {
        run_.shapes.insert(run_.shapes.end(), late.begin(), late.end());
      } else {
        for (ValueId result : graph_.results(node)) of_loss.insert(result);
      }
    }
    return !of_loss.contains(run_.scale) && !of_loss.contains(run_.labels) &&
           std::ranges::none_of(run_.shapes, [&](ValueId value) {
             return std::ranges::any_of(graph_.types().dims(graph_.type(value)), IsSymbol);
           });
  }

  const Graph& graph_;
  const Uses& uses_;
  const Liveness& liveness_;
  std::set<NodeId> members_;
  LossRun run_;
};

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

std::optional<LossRun> FindLossRun(const Graph& graph, const Uses& uses, const Liveness& liveness,
                                   NodeId first) {
  return LossFinder(graph, uses, liveness).Find(first);
}

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

std::vector<bool> NodesOfLosses(const Graph& graph, const Uses& uses, const Liveness& liveness) {
  std::vector<bool> fixed(graph.node_count());
  for (NodeId node : graph.nodes()) {
    std::optional<LossRun> loss = FindLossRun(graph, uses, liveness, node);
    for (size_t i = 0; loss && i < loss->count; ++i) fixed[node.index() + i] = true;
  }
  return fixed;
}

ArrangedGraph ArrangeStep(const Graph& graph, const std::optional<std::set<int64_t>>& copies) {
  Graph narrow = ReturnNarrowGradients(graph);
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
