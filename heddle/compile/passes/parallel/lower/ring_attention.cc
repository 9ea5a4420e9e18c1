// ring-attention: keys and values travel around the ranks in parts, instead of being gathered.
//
//   %k! = comm.all_gather(%k, over=[cp], dim=1, why=context)      and the same for %v
//   %o, %l = shard.attention(%q, %k_all, %v_all, over=[cp])
//
// with 2 ranks becomes, without transposes,
//
//   %kv! = comm.shift(%k, %v, over=[cp], why=context)
//   %a, %m = shard.attention(%q, %k, %v, over=[cp], step=0)       while the next part arrives
//   %k1, %v1 = comm.wait(%kv!)
//   %b, %n = shard.attention(%q, %k1, %v1, over=[cp], step=1)
//   %o, %l = shard.merge_attention(%a, %m, %b, %n, dtype=bf16)
//
// Only two parts of keys and values exist at a time. In backward, gradients of keys and values
// follow their part around the ring, one step later. Each rank adds its summand in f32, and one
// more shift returns the sum to the part's own rank. The scatter of the sums is dropped.
//
// Merged results round differently from attention over all keys, so the plan asks for a ring
// (`context [cp] ring`).
#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <vector>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/plan/patterns.h"
#include "heddle/core/analysis/launch.h"
#include "heddle/core/analysis/uses.h"
#include "heddle/core/ir/edit/call_builder.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

struct RingOptions {
  std::string modules = "**";
};

// Keys and values, or their gradients.
using KeyValue = std::array<ValueId, 2>;

class RingWriter {
 public:
  RingWriter(Graph& graph, const Mesh& mesh, std::string_view modules)
      : graph_(graph), mesh_(mesh), modules_(modules), uses_(graph), rewriter_(graph) {}

  int64_t Run() {
    int64_t rings = 0;
    auto count = static_cast<uint32_t>(graph_.node_count());
    for (uint32_t n = 0; n < count; ++n) rings += Replace(NodeId(n)) ? 1 : 0;
    return rings;
  }
  Changed Commit() { return rewriter_.Commit(); }

 private:
  // The gathers of keys and values before an attention, [batch, positions, heads, size].
  struct Gathers {
    KeyValue own;
    std::array<NodeId, 2> transposes;
  };
  // The sum over ranks of a gradient after its attention, for the rank's own positions.
  struct Scatter {
    NodeId transpose;
    ValueId sum;
  };

  const AttrValue& Attr(NodeId node, std::string_view name) const {
    static const AttrValue kNone;
    const AttrValue* value = graph_.attrs(node).Find(name);
    return value != nullptr ? *value : kNone;
  }
  NodeId ProducerOf(ValueId v, OpId op) const {
    NodeId node = v ? graph_[v].producer : NodeId();
    return node && graph_[node].op == op ? node : NodeId();
  }
  bool SwapsPositionsAndHeads(NodeId node) const {
    return graph_[node].op == op::transpose_int && Attr(node, "dim0") == AttrValue(int64_t{1}) &&
           Attr(node, "dim1") == AttrValue(int64_t{2});
  }
  // Whether the node moves one tensor along its positions, for this attention.
  bool MovesPositions(NodeId launch, OpId op, const Axes& over) const {
    return launch && graph_[launch].op == op && graph_.operands(launch).size() == 1 &&
           Attr(launch, "over") == AttrValue(over) &&
           Attr(launch, "dim") == AttrValue(int64_t{1}) &&
           Attr(launch, "why") == AttrValue(Why::kContext);
  }

  bool InModules(NodeId node) const {
    std::vector<std::string_view> paths = ScopePaths(graph_.scope(node));
    return modules_ == "**" || std::ranges::any_of(paths, [&](std::string_view path) {
             return MatchesPattern(modules_, path);
           });
  }

  std::optional<Gathers> GathersOf(NodeId node, size_t key, const Axes& over) const {
    Gathers out;
    for (size_t i = 0; i < 2; ++i) {
      NodeId transpose = ProducerOf(graph_.operands(node)[key + i], op::transpose_int);
      if (!transpose || !SwapsPositionsAndHeads(transpose)) return std::nullopt;
      NodeId wait = ProducerOf(graph_.operands(transpose)[0], op::comm_wait);
      if (!wait || !MovesPositions(LaunchOf(graph_, wait), op::comm_all_gather, over))
        return std::nullopt;
      out.own[i] = graph_.operands(LaunchOf(graph_, wait))[0];
      out.transposes[i] = transpose;
    }
    return out;
  }

  NodeId OnlyReader(ValueId v) const {
    return uses_.of(v).size() == 1 && !uses_.is_output(v) ? uses_.of(v)[0].node : NodeId();
  }

  std::optional<Scatter> ScatterOf(ValueId grad, const Axes& over) const {
    NodeId transpose = OnlyReader(grad);
    if (!transpose || !SwapsPositionsAndHeads(transpose)) return std::nullopt;
    NodeId reader = OnlyReader(graph_[transpose].first_result);
    if (reader && graph_[reader].op == op::_to_copy)
      reader = OnlyReader(graph_[reader].first_result);
    if (!MovesPositions(reader, op::comm_reduce_scatter, over)) return std::nullopt;
    if (graph_.attrs(reader).Find("op") != nullptr || graph_.attrs(reader).Find("scale") != nullptr)
      return std::nullopt;
    NodeId wait = OnlyReader(graph_[reader].first_result);
    if (!wait) return std::nullopt;
    return Scatter{transpose, graph_[wait].first_result};
  }

  bool Replace(NodeId node) {
    const bool backward = graph_[node].op == op::shard_attention_backward;
    if (!backward && graph_[node].op != op::shard_attention) return false;
    const size_t query = backward ? 1 : 0;
    const Axes over = std::get<Axes>(Attr(node, "over"));
    // Attention within documents reads positions.
    const bool documents = static_cast<bool>(graph_.operands(node).back());
    if (documents || over.size() != 1 || !InModules(node)) return false;
    std::optional<Gathers> gathers = GathersOf(node, query + 1, over);
    if (!gathers) return false;
    at_ = node;
    ranks_ = mesh_.Size(over);
    if (backward) {
      std::optional<Scatter> keys = ScatterOf(graph_.results(node)[1], over);
      std::optional<Scatter> values = ScatterOf(graph_.results(node)[2], over);
      if (!keys || !values) return false;
      WriteBackward(gathers->own, {keys->sum, values->sum});
      EraseBehind(keys->sum);
      EraseBehind(values->sum);
    } else {
      WriteForward(gathers->own);
    }
    Erase(node);
    for (NodeId transpose : gathers->transposes) EraseUnused(transpose);
    return true;
  }

  void WriteForward(KeyValue part) {
    ValueId query = graph_.operands(at_)[0];
    ValueId out;
    ValueId logsumexp;
    for (int64_t step = 0; step < ranks_; ++step) {
      ValueId next = step + 1 < ranks_ ? Shift(part) : ValueId();
      auto results = Attend({query, Transposed(part[0]), Transposed(part[1]), {}}, step);
      if (step == 0) {
        out = results[0];
        logsumexp = results[1];
      } else {
        auto merged = Merge({out, logsumexp, results[0], results[1]}, step + 1 == ranks_);
        out = merged[0];
        logsumexp = merged[1];
      }
      if (next) part = Wait(next);
    }
    TakePlace(graph_.results(at_)[0], out);
    TakePlace(graph_.results(at_)[1], logsumexp);
  }

  void WriteBackward(KeyValue part, const KeyValue& sums) {
    std::vector<ValueId> operands(graph_.operands(at_).begin(), graph_.operands(at_).end());
    ValueId queries;
    KeyValue grads;
    ValueId moving;
    for (int64_t step = 0; step < ranks_; ++step) {
      ValueId next = step + 1 < ranks_ ? Shift(part) : ValueId();
      operands[2] = Transposed(part[0]);
      operands[3] = Transposed(part[1]);
      auto results = Attend(operands, step);
      queries = Sum(queries, results[0]);
      if (moving) grads = Wait(moving);
      for (size_t i = 0; i < 2; ++i) grads[i] = Sum(grads[i], Transposed(results[i + 1]));
      moving = Shift(grads);
      if (next) part = Wait(next);
    }
    grads = Wait(moving);
    TakePlace(graph_.results(at_)[0], Cast(queries, DTypeOf(graph_.results(at_)[0])));
    for (size_t i = 0; i < 2; ++i) TakePlace(sums[i], grads[i]);
  }

  // --- Nodes

  std::vector<ValueId> Add(OpId op, std::span<const ValueId> operands, const Attrs& attrs,
                           std::span<const TypeId> types) {
    std::vector<ResultSpec> results;
    results.reserve(types.size());
    for (TypeId type : types) results.push_back({type, op == op::comm_shift ? "ring!" : "ring"});
    NodeId node = rewriter_.InsertBefore(
        at_, {.op = op,
              .operands = operands,
              .attrs = graph_.InternAttrs(CanonicalAttrs(graph_.ops()[op], attrs)),
              .results = results,
              .scope = graph_[at_].scope,
              .phase = graph_[at_].phase,
              .stream = graph_[at_].stream});
    return {graph_.results(node).begin(), graph_.results(node).end()};
  }

  ValueId Transposed(ValueId v) {
    // The part that the rank has itself is often transposed already.
    NodeId producer = graph_[v].producer;
    if (producer && SwapsPositionsAndHeads(producer)) return graph_.operands(producer)[0];
    Attrs attrs;
    attrs.Set("dim0", int64_t{1});
    attrs.Set("dim1", int64_t{2});
    Type type = graph_.types()[graph_.type(v)];
    std::swap(type.dims[1], type.dims[2]);
    TypeId swapped = graph_.types().Intern(type);
    return Add(op::transpose_int, {&v, 1}, attrs, {&swapped, 1})[0];
  }

  ValueId Shift(const KeyValue& tensors) {
    Attrs attrs;
    attrs.list_sizes = {static_cast<uint32_t>(tensors.size())};
    attrs.Set("over", std::get<Axes>(Attr(at_, "over")));
    attrs.Set("why", Why::kContext);
    const std::array<TypeId, 2> moved = {graph_.type(tensors[0]), graph_.type(tensors[1])};
    TypeId type = graph_.types().Async(moved);
    return Add(op::comm_shift, tensors, attrs, {&type, 1})[0];
  }

  KeyValue Wait(ValueId handle) {
    std::span<const TypeId> elements = graph_.types().elements(graph_.type(handle));
    const std::array<TypeId, 2> types = {elements[0], elements[1]};
    std::vector<ValueId> results = Add(op::comm_wait, {&handle, 1}, {}, types);
    return {results[0], results[1]};
  }

  // Attention over the part of one rank: the op of the node with other keys and values.
  std::vector<ValueId> Attend(std::vector<ValueId> operands, int64_t step) {
    Attrs attrs = graph_.attrs(at_);
    attrs.Set("step", step);
    std::vector<TypeId> types;
    if (graph_[at_].op == op::shard_attention) {
      for (ValueId v : graph_.results(at_)) types.push_back(graph_.type(v));
    } else {
      for (size_t i : {1, 2, 3}) types.push_back(graph_.type(operands[i]));
    }
    return Add(graph_[at_].op, operands, attrs, types);
  }

  // Rounds the output after the last step.
  std::vector<ValueId> Merge(const std::vector<ValueId>& operands, bool last) {
    Attrs attrs;
    ValueId out = graph_.results(at_)[0];
    DType wide = DTypeOf(operands[1]);
    if (last && DTypeOf(out) != wide) attrs.Set("dtype", DTypeOf(out));
    const std::array<TypeId, 2> types = {last ? graph_.type(out) : WithDType(out, wide),
                                         graph_.type(operands[1])};
    return Add(op::shard_merge_attention, operands, attrs, types);
  }

  // Adds a summand in f32, to none at first.
  ValueId Sum(ValueId sum, ValueId summand) {
    DType wide = DTypeOf(summand) == DType::kF64 ? DType::kF64 : DType::kF32;
    if (!sum) return Cast(summand, wide);
    TypeId type = graph_.type(sum);
    const std::array<ValueId, 2> operands = {sum, summand};
    return Add(op::add_Tensor, operands, {}, {&type, 1})[0];
  }

  ValueId Cast(ValueId v, DType dtype) {
    if (DTypeOf(v) == dtype) return v;
    Attrs attrs;
    attrs.Set("dtype", dtype);
    TypeId type = WithDType(v, dtype);
    return Add(op::_to_copy, {&v, 1}, attrs, {&type, 1})[0];
  }

  DType DTypeOf(ValueId v) const { return graph_.types().dtype(graph_.type(v)); }
  TypeId WithDType(ValueId v, DType dtype) {
    Type type = graph_.types()[graph_.type(v)];
    type.dtype = dtype;
    return graph_.types().Intern(type);
  }

  // --- The nodes that are replaced

  void TakePlace(ValueId old, ValueId v) {
    rewriter_.ReplaceValue(old, v);
    rewriter_.SwapNames(old, v);
  }

  void Erase(NodeId node) {
    erased_.insert(node.index());
    rewriter_.Erase(node);
  }

  // Erases a transpose, its wait and its gather, unless other nodes read them.
  void EraseUnused(NodeId node) {
    if (erased_.contains(node.index())) return;
    for (ValueId v : graph_.results(node)) {
      bool read = std::ranges::any_of(
          uses_.of(v), [&](const Use& use) { return !erased_.contains(use.node.index()); });
      if (read || uses_.is_output(v)) return;
    }
    Erase(node);
    if (graph_[node].op != op::comm_all_gather)
      EraseUnused(graph_[graph_.operands(node)[0]].producer);
  }

  // Erases the nodes from a wait back to the attention, each of which only the next one reads.
  void EraseBehind(ValueId sum) {
    for (NodeId node = graph_[sum].producer; node != at_;
         node = graph_[graph_.operands(node)[0]].producer)
      Erase(node);
  }

  Graph& graph_;
  const Mesh& mesh_;
  std::string_view modules_;
  Uses uses_;
  Rewriter rewriter_;
  std::set<uint32_t> erased_;
  // The attention that is replaced, and the ranks that share its positions.
  NodeId at_;
  int64_t ranks_ = 1;
};

Result<Changed> RingAttention(Graph& graph, const RingOptions& options, PassContext& context) {
  RingWriter writer(graph, context.mesh(), options.modules);
  int64_t rings = writer.Run();
  context.Count("rings", rings);
  if (rings == 0)
    context.AddRemark(graph, {}, RemarkKind::kNoEffect,
                      "no attention gathers its keys and values over one axis");
  return writer.Commit();
}

constexpr OptionDef kRingAttentionOptions[] = {Option<&RingOptions::modules>(
    "modules", "pattern for the modules whose attention runs in a ring")};
constexpr std::string_view kRingAttentionStats[] = {"rings"};

}  // namespace

HEDDLE_DEFINE_PASS(ring_attention){
    .name = "ring-attention",
    .summary =
        "Lets keys and values travel around context-parallel ranks in parts, instead of "
        "gathering them",
    .run = Run<RingAttention>,
    .make_options = Make<RingOptions>,
    .options = kRingAttentionOptions,
    .any_view = false,
    .needs = View::kLocal,
    .numerics = Numerics::kRounding,
    .stats = kRingAttentionStats,
};

}  // namespace heddle::compile
