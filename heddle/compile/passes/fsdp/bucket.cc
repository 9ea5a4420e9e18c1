#include "heddle/compile/passes/fsdp/bucket.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>

#include <fmt/ranges.h>

#include "heddle/compile/passes/fsdp/hoist.h"
#include "heddle/compile/passes/fsdp/scheduler.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/edit/call_builder.h"
#include "heddle/core/ir/storage.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

constexpr std::array<std::string_view, 2> kOrders = {"parameter", "graph"};

template <typename T>
T AttrOr(const Attrs& attrs, std::string_view name, T otherwise) {
  const AttrValue* value = attrs.Find(name);
  return value != nullptr ? std::get<T>(*value) : otherwise;
}

}  // namespace

Result<PayloadOrder> ParsePayloadOrder(std::string_view name) {
  auto at = std::ranges::find(kOrders, name);
  if (at != kOrders.end()) return static_cast<PayloadOrder>(at - kOrders.begin());
  return Error(Diag::kPassOption, "`{}` is not an order of payloads; choose {}{}", name,
               fmt::join(kOrders, " or "), NearestHint(name, kOrders));
}

std::optional<BucketKey> KeyOf(const Graph& graph, NodeId launch) {
  const Attrs& attrs = graph.attrs(launch);
  const TypeTable& types = graph.types();
  DType dtype = types.dtype(graph.type(graph.operands(launch)[0]));
  for (ValueId v : graph.operands(launch)) {
    if (types.dtype(graph.type(v)) != dtype) return std::nullopt;
  }
  return BucketKey{graph[launch].phase,
                   graph[launch].op,
                   std::get<Axes>(*attrs.Find("over")).bits(),
                   graph[launch].stream,
                   WhyOf(graph, launch),
                   dtype,
                   AttrOr(attrs, "op", ReduceOp::kSum),
                   std::bit_cast<uint64_t>(AttrOr(attrs, "scale", 1.0))};
}

Bucketer::Bucketer(Graph& graph, PassContext& context, PayloadOrder order)
    : graph_(graph),
      context_(context),
      order_(order),
      weights_(graph),
      wait_of_(graph.node_count()) {
  for (NodeId id : graph.nodes()) {
    if (IsUnshard(graph, id) || IsGradReduction(graph, id)) launches_.push_back(id);
    if (!IsWait(graph, id)) continue;
    if (NodeId start = graph[graph.operands(id)[0]].producer) wait_of_[start.index()] = id;
  }
}

NodeId IndependentLaunches::FindNeeded(NodeId launch) {
  if (list_.empty()) return {};
  const uint32_t first = list_[0].index();
  HEDDLE_CHECK(launch > list_.back(), "launches of a bucket are not in execution order");
  for (uint32_t n = first + static_cast<uint32_t>(needs_.size()); n <= launch.index(); ++n) {
    NodeId needed;
    for (ValueId v : graph_->operands(NodeId(n))) {
      NodeId producer = v ? (*graph_)[v].producer : NodeId();
      if (!producer || producer.index() < first) continue;
      NodeId other = needs_[producer.index() - first];
      if (other && (!needed || other < needed)) needed = other;
    }
    needs_.push_back(needed);
  }
  return needs_[launch.index() - first];
}

void IndependentLaunches::Add(NodeId launch) {
  list_.push_back(launch);
  needs_.resize(launch.index() - list_[0].index() + 1);
  needs_.back() = launch;
}

bool Bucketer::Join(IndependentLaunches& members, NodeId launch) {
  NodeId needed = members.FindNeeded(launch);
  if (!needed) {
    members.Add(launch);
    return true;
  }
  context_.AddRemark(graph_, graph_[launch].first_result, RemarkKind::kBucketDependent,
                     "not merged with %{}, because it depends on it",
                     graph_.name(graph_[needed].first_result));
  return false;
}

void Bucketer::Add(const std::vector<NodeId>& members) {
  IndependentLaunches bucket(graph_);
  for (NodeId member : members) Join(bucket, member);
  context_.Count("launches", static_cast<int64_t>(members.size()));
  if (bucket.list().size() > 1) buckets_.push_back(bucket.list());
}

Changed Bucketer::Finish() {
  if (buckets_.empty()) return Changed::kNo;
  Scheduler scheduler(graph_);
  for (const std::vector<NodeId>& bucket : buckets_) {
    std::vector<NodeId> waits;
    for (NodeId member : bucket) waits.push_back(wait_of_[member.index()]);
    bool gathers = graph_[bucket[0]].op == op::comm_all_gather;
    scheduler.AddBucket(bucket, waits, gathers ? bucket.front() : bucket.back());
    if (!gathers) continue;
    for (NodeId member : bucket) HoistBefore(graph_, weights_, member, bucket[0], scheduler);
  }
  std::vector<NodeId> order = scheduler.Run();
  Rewriter rewriter(graph_);
  std::vector<NodeId> merged(graph_.node_count());
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const std::vector<NodeId>& bucket = buckets_[b];
    if (!scheduler.holds(b)) {
      context_.AddRemark(graph_, graph_[bucket[0]].first_result, RemarkKind::kBucketDependent,
                         "{} not merged: another bucket and this one would depend on each other",
                         Counted(static_cast<int64_t>(bucket.size()), "collective"));
      continue;
    }
    auto [launch, wait] = Merge(rewriter, bucket);
    merged[bucket[0].index()] = launch;
    merged[wait_of_[bucket[0].index()].index()] = wait;
    context_.Count("buckets");
  }
  if (std::ranges::none_of(merged, [](NodeId id) { return static_cast<bool>(id); }))
    return Changed::kNo;
  for (NodeId& id : order) {
    if (merged[id.index()]) id = merged[id.index()];
  }
  // Merged launches are at the end until they are removed.
  std::vector<bool> listed(graph_.node_count());
  for (NodeId id : order) listed[id.index()] = true;
  for (uint32_t n = 0; n < listed.size(); ++n) {
    if (!listed[n]) order.emplace_back(n);
  }
  rewriter.Reorder(order);
  return rewriter.Commit();
}

int64_t Bucketer::ParamOf(NodeId launch, size_t i) const {
  bool gathers = graph_[launch].op == op::comm_all_gather;
  return weights_.param(gathers ? graph_.operands(launch)[i]
                                : graph_.results(wait_of_[launch.index()])[i]);
}

std::vector<Bucketer::Tensor> Bucketer::TensorsOf(const std::vector<NodeId>& members) {
  std::vector<Tensor> tensors;
  for (NodeId member : members) {
    IdRange<ValueId> results = graph_.results(wait_of_[member.index()]);
    const AttrValue* dim = graph_.attrs(member).Find("dim");
    for (size_t i = 0; i < graph_.operands(member).size(); ++i) {
      ValueId operand = graph_.operands(member)[i];
      int64_t param = ParamOf(member, i);
      if (param < 0 && order_ == PayloadOrder::kParameter)
        context_.AddRemark(graph_, results[i], RemarkKind::kPayloadOrder,
                           "belongs to no parameter, so it is packed after the parameters");
      tensors.push_back({operand, results[i], dim != nullptr ? EachInt(*dim, i) : 0,
                         std::string(UnitOf(graph_, member, i)), param < 0 ? INT64_MAX : param});
    }
  }
  if (order_ == PayloadOrder::kParameter) std::ranges::stable_sort(tensors, {}, &Tensor::param);
  return tensors;
}

std::pair<NodeId, NodeId> Bucketer::Merge(Rewriter& rewriter, const std::vector<NodeId>& members) {
  NodeId first = members[0];
  std::vector<Tensor> tensors = TensorsOf(members);
  std::vector<ValueId> operands;
  std::vector<TypeId> elements;
  for (const Tensor& tensor : tensors) {
    operands.push_back(tensor.operand);
    elements.push_back(graph_.type(tensor.result));
  }
  ScopeId scope = CommonScope(members);
  ValueId handle = graph_[first].first_result;
  ResultSpec async{graph_.types().Async(elements), graph_.name(handle)};
  NodeSpec start{.op = graph_[first].op,
                 .operands = operands,
                 .attrs = graph_.InternAttrs(MergedAttrs(first, tensors)),
                 .results = {&async, 1},
                 .scope = scope,
                 .phase = graph_[first].phase,
                 .stream = graph_[first].stream};
  NodeId launch = rewriter.InsertLast(start);
  NodeId old_wait = wait_of_[first.index()];
  ValueId merged_handle = graph_[launch].first_result;
  std::vector<ResultSpec> results;
  for (const Tensor& tensor : tensors)
    results.push_back({graph_.type(tensor.result), "bucket", PlacementTable::kReplicated,
                       graph_[tensor.result].keep});
  NodeSpec end{.op = op::comm_wait,
               .operands = {&merged_handle, 1},
               .results = results,
               .scope = scope,
               .phase = graph_[old_wait].phase};
  NodeId wait = rewriter.InsertLast(end);
  rewriter.SwapNames(merged_handle, handle);
  for (size_t i = 0; i < tensors.size(); ++i) {
    rewriter.SwapNames(graph_.results(wait)[i], tensors[i].result);
    rewriter.ReplaceValue(tensors[i].result, graph_.results(wait)[i]);
  }
  for (NodeId member : members) {
    rewriter.Erase(member);
    rewriter.Erase(wait_of_[member.index()]);
  }
  return {launch, wait};
}

// Attributes that differ between tensors become lists with an item for each.
Attrs Bucketer::MergedAttrs(NodeId first, const std::vector<Tensor>& tensors) const {
  Attrs attrs = graph_.attrs(first);
  attrs.list_sizes = {static_cast<uint32_t>(tensors.size())};
  std::vector<int64_t> dims;
  std::vector<std::string> units;
  for (const Tensor& tensor : tensors) {
    dims.push_back(tensor.dim);
    units.push_back(tensor.unit);
  }
  std::erase_if(attrs.list, [](const Attr& a) { return a.name == "dim" || a.name == "unit"; });
  auto same = [](const auto& list) {
    return std::ranges::all_of(list, [&](const auto& item) { return item == list[0]; });
  };
  if (!same(dims)) {
    attrs.Set("dim", dims);
  } else if (dims[0] != 0) {
    attrs.Set("dim", dims[0]);
  }
  if (!same(units)) {
    attrs.Set("unit", units);
  } else if (!units[0].empty()) {
    attrs.Set("unit", units[0]);
  }
  return CanonicalAttrs(graph_.op(first), attrs);
}

// The innermost module that contains all members.
ScopeId Bucketer::CommonScope(const std::vector<NodeId>& members) {
  std::string_view common = graph_.scope(members[0]);
  for (NodeId member : members) {
    std::string_view scope = graph_.scope(member);
    while (!common.empty() && scope != common &&
           !(scope.starts_with(common) && scope[common.size()] == '.')) {
      size_t dot = common.rfind('.');
      common = dot == std::string_view::npos ? std::string_view() : common.substr(0, dot);
    }
  }
  return graph_.InternScope(common);
}

Bytes TravellingBytes(const Graph& graph, NodeId launch) {
  const TypeTable& types = graph.types();
  Bytes in;
  for (ValueId v : graph.operands(launch)) in += types.bytes(graph.type(v));
  return std::max(in, types.bytes(graph.type(graph[launch].first_result)));
}

std::vector<std::vector<NodeId>> BucketsBySize(const Graph& graph, Bucketer& bucketer,
                                               Bytes max_bytes) {
  struct Open {
    IndependentLaunches members;
    Bytes bytes = {};
  };
  std::map<BucketKey, Open> open;
  std::vector<std::vector<NodeId>> buckets;
  for (NodeId launch : bucketer.launches()) {
    std::optional<BucketKey> key = KeyOf(graph, launch);
    if (!key) continue;
    Open& bucket = open.try_emplace(*key, Open{IndependentLaunches(graph)}).first->second;
    Bytes size = TravellingBytes(graph, launch);
    bool fits = bucket.members.list().empty() || bucket.bytes + size <= max_bytes;
    if (!fits || !bucketer.Join(bucket.members, launch)) {
      buckets.push_back(bucket.members.list());
      bucket = {IndependentLaunches(graph)};
      bucket.members.Add(launch);
    }
    bucket.bytes += size;
  }
  for (const auto& [key, bucket] : open) buckets.push_back(bucket.members.list());
  return buckets;
}

}  // namespace heddle::compile
