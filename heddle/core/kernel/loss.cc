#include "heddle/core/kernel/loss.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "heddle/core/analysis/launch.h"
#include "heddle/core/ir/edit/call_builder.h"
#include "heddle/core/ir/edit/rewriter.h"
#include "heddle/core/kernel/node_facts.h"

namespace heddle {
namespace {

// The nodes of a loss, which need not be neighbours.
struct LossNodes {
  std::set<NodeId> members;
  LossRun run;
};

// Matches the nodes of a loss, from the cast of the logits on.
class LossMatcher {
 public:
  LossMatcher(const Graph& graph, const Uses& uses) : graph_(graph), uses_(uses) {}

  std::optional<LossNodes> Match(NodeId first) {
    if (!IsPlainCast(graph_, first, DType::kBF16, DType::kF32)) return {};
    members_ = {first};
    run_.logits = graph_.operands(first)[0];
    NodeId softmax = UserBehindViews(graph_[first].first_result);
    if (!softmax || !MatchForward(softmax) || !MatchBackward()) return {};
    return LossNodes{std::move(members_), run_};
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

  bool MatchForward(NodeId softmax) {
    if (graph_[softmax].op != op::_log_softmax) return false;
    logp_ = graph_[softmax].first_result;
    std::span<const Dim> dims = graph_.types().dims(graph_.type(logp_));
    if (dims.size() != 2 || std::ranges::any_of(dims, IsSymbol)) return false;
    int64_t dim = AttrOf<int64_t>(graph_, softmax, "dim", 0);
    if ((dim != 1 && dim != -1) || uses_.of(logp_).size() != 3 || uses_.is_output(logp_))
      return false;
    for (const Use& use : uses_.of(logp_)) {
      OpId op = graph_[use.node].op;
      if (op == op::nll_loss_forward) run_.forward = use.node;
      if (op == op::nll_loss_backward) nll_backward_ = use.node;
      if (op == op::_log_softmax_backward_data) backward_ = use.node;
    }
    run_.rows = dims[0];
    run_.columns = dims[1];
    members_.insert(softmax);
    return run_.forward && nll_backward_ && backward_;
  }

  // Operands: (self, target, weight); (grad_output, self, target, weight, total_weight).
  bool MatchBackward() {
    if (!IsPlainSum(run_.forward, 2) || !IsPlainSum(nll_backward_, 3)) return false;
    std::span<const ValueId> forward = graph_.operands(run_.forward);
    std::span<const ValueId> grads = graph_.operands(nll_backward_);
    ValueId weight(graph_[run_.forward].first_result.index() + 1);
    run_.labels = forward[1];
    run_.scale = grads[0];
    run_.ignored = AttrOf<int64_t>(graph_, run_.forward, "ignore_index", 0);
    bool same = forward[0] == logp_ && grads[1] == logp_ && grads[2] == run_.labels &&
                grads[4] == weight && OnlyUser(weight) == nll_backward_ &&
                graph_.types().dtype(graph_.type(run_.labels)) == DType::kI64 &&
                run_.ignored == AttrOf<int64_t>(graph_, nll_backward_, "ignore_index", 1);
    ValueId nll = graph_[nll_backward_].first_result;
    if (!same || OnlyUser(nll) != backward_ || graph_.operands(backward_)[0] != nll ||
        graph_.operands(backward_)[1] != logp_)
      return false;
    run_.gradient = UserBehindViews(graph_[backward_].first_result);
    if (!run_.gradient || !IsPlainCast(graph_, run_.gradient, DType::kF32, DType::kBF16))
      return false;
    members_.insert({run_.forward, nll_backward_, backward_, run_.gradient});
    return true;
  }

  // Whether it is a sum without class weights.
  bool IsPlainSum(NodeId nll, size_t weight) const {
    return AttrOf<int64_t>(graph_, nll, "reduction", 0) == 2 && !graph_.operands(nll)[weight];
  }

  const Graph& graph_;
  const Uses& uses_;
  std::set<NodeId> members_;
  LossRun run_;
  ValueId logp_;
  NodeId nll_backward_;
  NodeId backward_;
};

// Ops whose result depends only on the shape of their operand, and the op that makes it of a size.
std::optional<OpId> OfSize(OpId op) {
  if (op == op::ones_like) return op::ones;
  if (op == op::zeros_like) return op::zeros;
  return std::nullopt;
}

// A new order of the nodes between the first and last of a loss.
class LossOrder {
 public:
  LossOrder(const Graph& graph, const LossNodes& loss) : graph_(graph), loss_(loss) {
    after_.insert(graph[loss.run.forward].first_result);
  }

  // False if there is no such order.
  bool Find() {
    for (size_t i = loss_.members.begin()->index(); i <= loss_.run.gradient.index(); ++i) {
      NodeId node(i);
      if (loss_.members.contains(node)) continue;
      Effect effect = graph_.op(node).effect();
      if (effect != Effect::kPure && effect != Effect::kView && effect != Effect::kComm)
        return false;
      Place(node);
    }
    return !after_.contains(loss_.run.scale) && !after_.contains(loss_.run.labels);
  }
  std::vector<NodeId> Order() const {
    std::vector<NodeId> order = early_;
    order.insert(order.end(), loss_.members.begin(), loss_.members.end());
    order.insert(order.end(), late_.begin(), late_.end());
    return order;
  }
  // Nodes before the loss that read the shape of a value after it.
  const std::vector<NodeId>& of_shapes() const { return of_shapes_; }

 private:
  void Place(NodeId node) {
    bool depends = std::ranges::any_of(graph_.operands(node),
                                       [&](ValueId v) { return v && after_.contains(v); });
    bool of_shape = depends && ReadsFixedShape(node);
    if (of_shape) of_shapes_.push_back(node);
    // Every launch after one that depends on the loss is late, so communicators keep their order.
    bool late = (depends && !of_shape) || (launches_late_ && IsLaunch(graph_, node));
    (late ? late_ : early_).push_back(node);
    if (!late) return;
    launches_late_ = launches_late_ || IsLaunch(graph_, node);
    for (ValueId result : graph_.results(node)) after_.insert(result);
  }
  bool ReadsFixedShape(NodeId node) const {
    std::span<const Dim> dims = graph_.types().dims(graph_.type(graph_[node].first_result));
    return OfSize(graph_[node].op) && std::ranges::none_of(dims, IsSymbol);
  }

  const Graph& graph_;
  const LossNodes& loss_;
  std::vector<NodeId> early_;
  std::vector<NodeId> late_;
  std::vector<NodeId> of_shapes_;
  // Values that depend on the loss.
  std::set<ValueId> after_;
  bool launches_late_ = false;
};

// Makes a node state the shape of its result, so that it needs no operand.
void StateShape(Graph& graph, Rewriter& rewriter, NodeId node) {
  TypeId type = graph.type(graph[node].first_result);
  std::span<const Dim> dims = graph.types().dims(type);
  OpId op = *OfSize(graph[node].op);
  Attrs attrs;
  attrs.Set("size", std::vector<int64_t>(dims.begin(), dims.end()));
  attrs.Set("dtype", graph.types().dtype(type));
  AttrsId id = graph.InternAttrs(CanonicalAttrs(graph.ops()[op], attrs));
  rewriter.SetOperands(node, {}, id);
  rewriter.SetOp(node, op, id);
}

}  // namespace

std::optional<LossRun> FindLossRun(const Graph& graph, const Uses& uses, const Liveness& liveness,
                                   NodeId first) {
  std::optional<LossNodes> loss = LossMatcher(graph, uses).Match(first);
  if (!loss) return {};
  LossRun& run = loss->run;
  run.count = run.gradient.index() - first.index() + 1;
  if (loss->members.size() != run.count) return {};
  const Storage& logits = liveness.storages()[liveness.of(run.logits)];
  // Ranks of one process may share the result of a collective.
  run.in_place = logits.birth && graph.op(logits.birth).name().starts_with("aten.") &&
                 logits.death && logits.death <= run.gradient;
  return run;
}

Graph GatherLosses(Graph graph) {
  Uses uses(graph);
  std::vector<NodeId> order;
  std::vector<NodeId> of_shapes;
  for (NodeId node : graph.nodes()) {
    if (node.index() < order.size()) continue;
    std::optional<LossNodes> loss = LossMatcher(graph, uses).Match(node);
    if (loss) {
      LossOrder gathered(graph, *loss);
      if (gathered.Find()) {
        std::ranges::copy(gathered.Order(), std::back_inserter(order));
        std::ranges::copy(gathered.of_shapes(), std::back_inserter(of_shapes));
        continue;
      }
    }
    order.push_back(node);
  }
  if (std::ranges::is_sorted(order)) return graph;
  Rewriter rewriter(graph);
  for (NodeId node : of_shapes) StateShape(graph, rewriter, node);
  rewriter.Reorder(order);
  rewriter.Commit();
  return graph;
}

std::vector<bool> NodesOfLosses(const Graph& graph, const Uses& uses, const Liveness& liveness) {
  std::vector<bool> fixed(graph.node_count());
  for (NodeId node : graph.nodes()) {
    std::optional<LossRun> loss = FindLossRun(graph, uses, liveness, node);
    for (size_t i = 0; loss && i < loss->count; ++i) fixed[node.index() + i] = true;
  }
  return fixed;
}

}  // namespace heddle
