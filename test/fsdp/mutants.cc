#include "test/fsdp/mutants.h"

#include <gtest/gtest.h>

#include "heddle/core/analysis/weights.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

// --- Functions that find nodes for the mutants. A missing node is an error of the test.

NodeId Nth(const Graph& graph, OpId op, Why why, Phase phase, size_t n) {
  for (NodeId id : graph.nodes()) {
    bool found = graph[id].op == op && graph[id].phase == phase && WhyOf(graph, id) == why;
    if (found && n-- == 0) return id;
  }
  ADD_FAILURE() << "no such launch";
  return NodeId(0);
}
NodeId Gather(const Graph& graph, Phase phase, size_t n) {
  return Nth(graph, op::comm_all_gather, Why::kUnshard, phase, n);
}
// Reductions of whole blocks; the first belongs to the last block.
NodeId Scatter(const Graph& graph, size_t n) {
  return Nth(graph, op::comm_reduce_scatter, Why::kGrad, Phase::kBackward, n);
}
NodeId Sum(const Graph& graph, size_t n) {
  return Nth(graph, op::comm_all_reduce, Why::kGrad, Phase::kBackward, n);
}
NodeId WaitOf(const Graph& graph, NodeId launch) {
  for (NodeId id : graph.nodes()) {
    if (graph[id].op == op::comm_wait && graph.operands(id)[0] == graph[launch].first_result)
      return id;
  }
  ADD_FAILURE() << "nothing waits";
  return NodeId(0);
}
// Returns the first node that reads a result of `node`.
NodeId ReaderOf(const Graph& graph, NodeId node) {
  for (NodeId id : graph.nodes()) {
    for (ValueId v : graph.operands(id)) {
      if (v && graph[v].producer == node) return id;
    }
  }
  ADD_FAILURE() << "nothing reads";
  return NodeId(0);
}
// Returns two tensors of a launch with the same type.
std::pair<size_t, size_t> SameTypes(const Graph& graph, NodeId launch) {
  std::span<const ValueId> operands = graph.operands(launch);
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t j = i + 1; j < operands.size(); ++j) {
      if (graph.type(operands[i]) == graph.type(operands[j])) return {i, j};
    }
  }
  ADD_FAILURE() << "all tensors differ in type";
  return {0, 0};
}

void SwapOperands(Graph& graph, Rewriter& rewriter, NodeId node, size_t i, size_t j) {
  ValueId first = graph.operands(node)[i];
  rewriter.SetOperand(node, i, graph.operands(node)[j]);
  rewriter.SetOperand(node, j, first);
}
void SetAttr(Graph& graph, Rewriter& rewriter, NodeId node, std::string_view name,
             const AttrValue& value) {
  Attrs attrs = graph.attrs(node);
  attrs.Set(name, value);
  rewriter.SetAttrs(node, graph.InternAttrs(attrs));
}
ValueId Insert(Graph& graph, Rewriter& rewriter, NodeId before, OpId op, ValueId operand,
               const Attrs& attrs, TypeId type) {
  ResultSpec result{.type = type, .name = "mutant"};
  NodeSpec spec{.op = op,
                .operands = {&operand, 1},
                .attrs = graph.InternAttrs(attrs),
                .results = {&result, 1},
                .phase = graph[before].phase};
  return graph[rewriter.InsertBefore(before, spec)].first_result;
}
// Casts tensor `i` of a launch to another element type and back.
void Round(Graph& graph, Rewriter& rewriter, NodeId launch, size_t i, DType narrow) {
  ValueId v = graph.operands(launch)[i];
  TypeId type = graph.type(v);
  Type through = graph.types()[type];
  DType wide = through.dtype;
  through.dtype = narrow;
  Attrs attrs;
  attrs.Set("dtype", narrow);
  v = Insert(graph, rewriter, launch, op::_to_copy, v, attrs, graph.types().Intern(through));
  attrs.Set("dtype", wide);
  v = Insert(graph, rewriter, launch, op::_to_copy, v, attrs, type);
  rewriter.SetOperand(launch, i, v);
}
// Multiplies tensor `i` of a launch by a number.
void Scale(Graph& graph, Rewriter& rewriter, NodeId launch, size_t i, double by) {
  ValueId v = graph.operands(launch)[i];
  Attrs attrs;
  attrs.Set("other", by);
  rewriter.SetOperand(launch, i,
                      Insert(graph, rewriter, launch, op::mul_Scalar, v, attrs, graph.type(v)));
}
// Makes backward read `now` instead of result `i` of the wait.
void ReadInstead(Graph& graph, Rewriter& rewriter, NodeId wait, size_t i, ValueId now) {
  ValueId was = graph.results(wait)[i];
  for (NodeId id : graph.nodes()) {
    for (size_t o = 0; o < graph.operands(id).size(); ++o) {
      if (graph.operands(id)[o] == was) rewriter.SetOperand(id, o, now);
    }
  }
}
size_t OutputOf(const Graph& graph, OutputRole role, int64_t index) {
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    if (graph.outputs()[o].role == role && graph.outputs()[o].index == index) return o;
  }
  ADD_FAILURE() << "no such output";
  return 0;
}
// Makes the consumers of the n-th all-reduce read its operands instead.
void SkipSum(Graph& graph, Rewriter& rewriter, NodeId sum) {
  NodeId wait = WaitOf(graph, sum);
  for (size_t i = 0; i < graph.operands(sum).size(); ++i)
    rewriter.ReplaceValue(graph.results(wait)[i], graph.operands(sum)[i]);
  rewriter.Erase(wait);
  rewriter.Erase(sum);
}

constexpr Phase kFwd = Phase::kForward;
constexpr Phase kBwd = Phase::kBackward;
using G = Graph;
using R = Rewriter;

// Moves nodes, in this order, before another node, or to the end.
void Move(const G& graph, R& rewriter, const std::vector<NodeId>& nodes, NodeId anchor) {
  std::vector<NodeId> order;
  for (uint32_t n = 0; n <= graph.node_count(); ++n) {
    if (n == anchor.index()) order.insert(order.end(), nodes.begin(), nodes.end());
    bool moves = std::ranges::find(nodes, NodeId(n)) != nodes.end();
    if (n < graph.node_count() && !moves) order.emplace_back(n);
  }
  rewriter.Reorder(order);
}

constexpr Mutant kMutants[] = {
    // --- Payloads
    {"gather_of_forward_packs_two_weights_in_each_others_place",
     [](G& g, R& r) {
       NodeId launch = Gather(g, kFwd, 1);
       auto [i, j] = SameTypes(g, launch);
       SwapOperands(g, r, launch, i, j);
     }},
    {"gather_of_backward_packs_two_weights_in_each_others_place",
     [](G& g, R& r) {
       NodeId launch = Gather(g, kBwd, 0);
       auto [i, j] = SameTypes(g, launch);
       SwapOperands(g, r, launch, i, j);
     }},
    {"reduction_packs_two_gradients_in_each_others_place",
     [](G& g, R& r) {
       NodeId launch = Scatter(g, 1);
       auto [i, j] = SameTypes(g, launch);
       SwapOperands(g, r, launch, i, j);
     }},
    {"offsets_of_two_gradients_are_swapped",
     [](G& g, R& r) {
       NodeId launch = Scatter(g, 1);
       auto [i, j] = SameTypes(g, launch);
       NodeId wait = WaitOf(g, launch);
       SwapOperands(g, r, launch, i, j);
       ValueId a = g.results(wait)[i];
       ValueId b = g.results(wait)[j];
       for (NodeId id : g.nodes()) {
         for (size_t o = 0; o < g.operands(id).size(); ++o) {
           if (g.operands(id)[o] == a) {
             r.SetOperand(id, o, b);
           } else if (g.operands(id)[o] == b) {
             r.SetOperand(id, o, a);
           }
         }
       }
       for (size_t o = 0; o < g.outputs().size(); ++o) {
         ValueId v = g.outputs()[o].value;
         if (v == a || v == b) r.SetOutput(o, v == a ? b : a);
       }
     }},
    {"gather_packs_one_weight_twice",
     [](G& g, R& r) {
       NodeId launch = Gather(g, kFwd, 1);
       auto [i, j] = SameTypes(g, launch);
       r.SetOperand(launch, j, g.operands(launch)[i]);
     }},
    {"reduction_packs_one_gradient_twice",
     [](G& g, R& r) {
       NodeId launch = Scatter(g, 1);
       auto [i, j] = SameTypes(g, launch);
       r.SetOperand(launch, j, g.operands(launch)[i]);
     }},
    {"gather_takes_a_moment_for_its_parameter",
     [](G& g, R& r) {
       NodeId launch = Gather(g, kBwd, 0);
       ValueId v = g.operands(launch)[0];
       for (const Input& input : g.inputs()) {
         if (input.role == InputRole::kOpt && g.type(input.value) == g.type(v)) v = input.value;
       }
       r.SetOperand(launch, 0, v);
     }},
    {"gather_has_a_tensor_too_few",
     [](G& g, R& r) {
       NodeId launch = Gather(g, kFwd, 1);
       std::vector<ValueId> rest(g.operands(launch).begin(), g.operands(launch).end() - 1);
       Attrs attrs = g.attrs(launch);
       attrs.list_sizes = {static_cast<uint32_t>(rest.size())};
       r.SetOperands(launch, rest, g.InternAttrs(attrs));
     }},
    // --- Sums
    {"reduction_in_bf16", [](G& g, R& r) { Round(g, r, Scatter(g, 1), 0, DType::kBF16); }},
    {"reduction_in_f16", [](G& g, R& r) { Round(g, r, Scatter(g, 1), 0, DType::kF16); }},
    {"sum_over_replicas_in_bf16", [](G& g, R& r) { Round(g, r, Sum(g, 1), 0, DType::kBF16); }},
    {"weights_gathered_in_bf16",
     [](G& g, R& r) { Round(g, r, Gather(g, kBwd, 0), 0, DType::kBF16); }},
    {"average_instead_of_sum",
     [](G& g, R& r) { SetAttr(g, r, Scatter(g, 1), "op", ReduceOp::kAvg); }},
    {"maximum_instead_of_sum",
     [](G& g, R& r) { SetAttr(g, r, Scatter(g, 1), "op", ReduceOp::kMax); }},
    {"average_over_replicas_instead_of_sum",
     [](G& g, R& r) { SetAttr(g, r, Sum(g, 0), "op", ReduceOp::kAvg); }},
    {"scale_applied_to_a_bucket", [](G& g, R& r) { SetAttr(g, r, Scatter(g, 1), "scale", 0.5); }},
    {"gradient_divided_once_more", [](G& g, R& r) { Scale(g, r, Scatter(g, 1), 0, 0.25); }},
    {"gradient_of_one_parameter_lost", [](G& g, R& r) { Scale(g, r, Scatter(g, 1), 1, 0.0); }},
    {"sum_over_replicas_left_out", [](G& g, R& r) { SkipSum(g, r, Sum(g, 0)); }},
    {"last_sum_over_replicas_left_out", [](G& g, R& r) { SkipSum(g, r, Sum(g, 2)); }},
    {"sum_over_the_wrong_axis",
     [](G& g, R& r) { SetAttr(g, r, Sum(g, 0), "over", *g.attrs(Scatter(g, 0)).Find("over")); }},
    {"scattered_over_the_wrong_axis",
     [](G& g, R& r) { SetAttr(g, r, Scatter(g, 0), "over", *g.attrs(Sum(g, 0)).Find("over")); }},
    {"gathered_over_the_wrong_axis",
     [](G& g, R& r) {
       SetAttr(g, r, Gather(g, kFwd, 1), "over", *g.attrs(Sum(g, 0)).Find("over"));
     }},
    // --- Wrong operands
    {"gradients_of_two_parameters_change_places",
     [](G& g, R& r) {
       size_t a = OutputOf(g, OutputRole::kGrad, 1);
       size_t b = OutputOf(g, OutputRole::kGrad, 2);
       ValueId first = g.outputs()[a].value;
       r.SetOutput(a, g.outputs()[b].value);
       r.SetOutput(b, first);
     }},
    {"waits_of_two_units_change_places",
     [](G& g, R& r) {
       NodeId a = WaitOf(g, Gather(g, kFwd, 1));
       NodeId b = WaitOf(g, Gather(g, kFwd, 2));
       ValueId first = g.operands(a)[0];
       r.SetOperand(a, 0, g.operands(b)[0]);
       r.SetOperand(b, 0, first);
     }},
    {"backward_gathers_the_other_unit",
     [](G& g, R& r) {
       NodeId launch = Gather(g, kBwd, 0);
       NodeId other = Gather(g, kBwd, 1);
       for (size_t i = 0; i < g.operands(launch).size(); ++i)
         r.SetOperand(launch, i, g.operands(other)[i]);
     }},
    {"backward_reads_the_weight_of_forward",
     [](G& g, R& r) {
       ReadInstead(g, r, WaitOf(g, Gather(g, kBwd, 0)), 0,
                   g.results(WaitOf(g, Gather(g, kFwd, 2)))[0]);
     }},
    {"forward_reads_the_weight_of_backward",
     [](G& g, R& r) {
       ReadInstead(g, r, WaitOf(g, Gather(g, kFwd, 2)), 0,
                   g.results(WaitOf(g, Gather(g, kBwd, 0)))[0]);
     }},
    {"backward_reads_another_layers_weight",
     [](G& g, R& r) {
       ReadInstead(g, r, WaitOf(g, Gather(g, kBwd, 0)), 0,
                   g.results(WaitOf(g, Gather(g, kBwd, 1)))[0]);
     }},
    {"kept_weight_is_not_marked",
     [](G& g, R& r) {
       for (ValueId v : g.values()) {
         if (g[v].keep == Keep::kMustSave) r.SetKeep(v, Keep::kDefault);
       }
     }},
    // --- Order
    {"wait_before_its_launch",
     [](G& g, R& r) {
       NodeId launch = Gather(g, kFwd, 1);
       Move(g, r, {WaitOf(g, launch)}, launch);
     }},
    {"wait_behind_its_first_reader",
     [](G& g, R& r) {
       NodeId wait = WaitOf(g, Gather(g, kFwd, 1));
       Move(g, r, {wait}, NodeId(ReaderOf(g, wait).index() + 1));
     }},
    {"reduction_starts_before_its_last_gradient",
     [](G& g, R& r) {
       NodeId launch = Scatter(g, 1);
       NodeId last;
       for (ValueId v : g.operands(launch)) {
         if (!last || g[v].producer > last) last = g[v].producer;
       }
       Move(g, r, {launch}, last);
     }},
    {"gather_behind_the_update_of_its_parameter",
     [](G& g, R& r) {
       NodeId launch = Gather(g, kBwd, 0);
       Move(g, r, {launch, WaitOf(g, launch)}, NodeId(g.node_count()));
     }},
    {"sum_over_replicas_before_the_parts_are_there",
     [](G& g, R& r) {
       NodeId sum = Sum(g, 0);
       Move(g, r, {sum}, WaitOf(g, Scatter(g, 0)));
     }},
    // --- Form
    {"launch_without_a_wait",
     [](G& g, R& r) {
       NodeId launch = Scatter(g, 1);
       r.CloneBefore(launch, launch);
     }},
    {"one_launch_waited_for_twice",
     [](G& g, R& r) {
       NodeId wait = WaitOf(g, Scatter(g, 1));
       r.CloneBefore(wait, wait);
     }},
    {"communicator_of_a_wait", [](G& g, R& r) { r.SetStream(WaitOf(g, Scatter(g, 1)), 2); }},
    {"gathered_along_the_wrong_dimension",
     [](G& g, R& r) { SetAttr(g, r, Gather(g, kFwd, 0), "dim", int64_t{1}); }},
    {"result_of_a_wait_has_the_type_of_the_part",
     [](G& g, R& r) {
       NodeId launch = Gather(g, kFwd, 0);
       r.SetType(g.results(WaitOf(g, launch))[0], g.type(g.operands(launch)[0]));
     }},
};

}  // namespace

std::span<const Mutant> AllMutants() { return kMutants; }

}  // namespace heddle
