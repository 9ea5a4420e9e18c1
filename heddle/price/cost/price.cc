// CostModel::Price: the costs of all nodes of a graph.
#include <algorithm>
#include <map>

#include "heddle/core/analysis/launch.h"
#include "heddle/core/ir/edit/call_table.h"
#include "heddle/core/kernel/element.h"
#include "heddle/core/kernel/index_add.h"
#include "heddle/core/ops/ops.h"
#include "heddle/price/cost/cost_model.h"
#include "heddle/price/cost/fusion.h"
#include "heddle/price/cost/kernel_time.h"
#include "heddle/price/cost/measured_index.h"

namespace heddle::price {
namespace {

// A call of an op. Equal calls have equal times, so repeated layers are priced once.
struct CallCost {
  Nanos compute;
  Nanos ideal;
  bool measured = false;
};

bool IsStart(const Graph& graph, NodeId id) {
  return graph.op(id).effect() == Effect::kComm && graph[id].op != op::comm_wait;
}

// Bytes of one rank's inputs. For rows of experts, all rows that pass through the most loaded rank
// in either direction. If their number is unknown at compile time, the buffer is not sent whole.
Bytes OperandBytes(const Graph& graph, NodeId id) {
  Bytes bytes;
  if (MovesRows(graph[id].op)) {
    Bytes in = graph.types().bytes(graph.type(graph.operands(id)[0]));
    Bytes out = graph.types().bytes(graph.type(graph[id].first_result));
    bool exact =
        std::ranges::any_of(graph.types().dims(graph.type(graph.operands(id)[0])), IsSymbol) ||
        graph.attrs(id).Find("size") != nullptr;
    return exact ? std::max(in, out) : std::min(in, out);
  }
  for (ValueId value : graph.operands(id)) bytes += graph.types().bytes(graph.type(value));
  return bytes;
}
Bytes ResultBytes(const Graph& graph, NodeId id) {
  Bytes bytes;
  for (ValueId value : graph.results(id)) bytes += graph.types().bytes(graph.type(value));
  return bytes;
}

// Sets whether a collective uses tensors in place, or packs its inputs and unpacks its outputs. The
// network sends one payload with consecutive parts, like tensors that are cut or joined along their
// first dimension.
void SetPacked(const Graph& graph, NodeId start, PackedTensors& packed) {
  // Whether any tensor is cut or joined along a dimension other than the first.
  auto strided = [&](std::string_view name) {
    const AttrValue* value = graph.attrs(start).Find(name);
    for (size_t i = 0; value != nullptr && i < graph.operands(start).size(); ++i) {
      int64_t dim = EachInt(*value, i);
      size_t rank = graph.types().rank(graph.type(graph.operands(start)[i]));
      if (dim != 0 && dim != -static_cast<int64_t>(rank)) return true;
    }
    return false;
  };
  // Received rows are sorted by expert, and sent rows are restored to their order.
  bool many = packed.members > 1;
  if (graph[start].op == op::comm_dispatch) {
    packed.after = true;
  } else if (graph[start].op == op::comm_combine) {
    packed.before = true;
  } else {
    switch (*CollectiveKindOf(graph[start].op)) {
      case CollectiveKind::kAllGather:
        packed.before = many;
        packed.after = many || strided("dim");
        break;
      case CollectiveKind::kReduceScatter: packed.before = many || strided("dim"); break;
      case CollectiveKind::kAllReduce:
      case CollectiveKind::kShift: packed.before = many; break;
      case CollectiveKind::kAllToAll:
        packed.before = many || strided("split_dim");
        packed.after = many || strided("concat_dim");
        break;
    }
  }
}

class GraphPricer {
 public:
  GraphPricer(const CostModel& model, const Module& module, const Graph& graph)
      : model_(model),
        device_(model.cluster().device),
        figures_(device_.Under(model.options().execution)),
        module_(module),
        graph_(graph),
        symbols_(graph.types().symbols()),
        collectives_(model, module.mesh) {
    if (model.measured() != nullptr) index_.emplace(*model.measured());
    for (const auto& [name, figures] : device_.memory_kernels) {
      OpId op = figures.strided < 1 ? Ops().Find(name) : OpId();
      if (op) strided_[op] = figures.strided;
    }
  }

  Result<GraphCosts> Run() {
    HEDDLE_TRY(cluster_nodes_, model_.NodesFor(module_.mesh));
    costs_.nodes.resize(graph_.node_count());
    for (NodeId id : graph_.nodes()) {
      if (IsStart(graph_, id)) {
        HEDDLE_RETURN_IF_ERROR(PriceStart(id));
      } else if (graph_[id].op == op::comm_wait) {
        PriceWait(id);
      } else {
        PriceKernel(id);
      }
    }
    // The rules of another program include its own view of launches.
    bool native = model_.options().rules.author.empty();
    if (native && model_.options().fused && figures_.fuse)
      PriceFused(device_, figures_, graph_, costs_);
    if (native) WaitForStragglers();
    if (index_) TakeMeasuredNodes();
    if (native) WaitForHost();
    CountLaunches();
    return std::move(costs_);
  }

 private:
  uint32_t StreamOf(NodeId id, CommStream stream) {
    auto [at, added] = streams_.try_emplace({stream.kind, stream.over, stream.stream, stream.peer},
                                            static_cast<uint32_t>(costs_.streams.size()));
    if (!added) return at->second;
    if (stream.kind == CommStream::Kind::kCommunicator) {
      stream.group = collectives_.Group(stream.over);
      stream.name = Format(module_.mesh, stream.over);
      if (graph_[id].stream != 0) stream.name += fmt::format(":{}", graph_[id].stream);
    } else if (stream.kind == CommStream::Kind::kSend ||
               stream.kind == CommStream::Kind::kReceive) {
      stream.name =
          fmt::format("{} {} {}", Format(module_.mesh, stream.over),
                      stream.kind == CommStream::Kind::kSend ? "to" : "from", stream.peer);
    } else {
      stream.name = stream.kind == CommStream::Kind::kCopyOut ? "copy out" : "copy in";
    }
    costs_.streams.push_back(std::move(stream));
    return at->second;
  }

  Status PriceStart(NodeId id) {
    NodeCost& cost = costs_.nodes[id];
    Bytes given = OperandBytes(graph_, id);
    std::optional<CollectiveKind> kind = CollectiveKindOf(graph_[id].op);
    CommStream stream;
    if (graph_[id].op == op::shard_redistribute) {
      return Error(Diag::kNeedsLocal,
                   "%{} is a redistribution, which has no price; run the pass `lower` first",
                   graph_.name(graph_[id].first_result));
    }
    if (IsTransfer(graph_, id)) {
      stream = TransferStream(id);
      // Both ends have the price of the whole transfer, which uses the links of both.
      bool sends = stream.kind == CommStream::Kind::kSend;
      Bytes bytes = sends ? given : ReceivedBytes(id);
      bool between_nodes = collectives_.Group(stream.over).nodes > 1;
      cost.collective = TransferCost(model_.cluster(), bytes, between_nodes);
      cost.collective.links = between_nodes ? Links::kNetwork : Links::kNode;
    } else if (!kind) {
      if (!model_.cluster().host) {
        return Error(Diag::kSpace,
                     "%{} copies between device and host, but {} has no link between them",
                     graph_.name(graph_[id].first_result), model_.cluster().name);
      }
      bool out = graph_[id].op == op::mem_offload;
      stream.kind = out ? CommStream::Kind::kCopyOut : CommStream::Kind::kCopyIn;
      cost.collective = model_.Copy(given);
    } else {
      stream.over = std::get<Axes>(*graph_.attrs(id).Find("over"));
      stream.stream = graph_[id].stream;
      HEDDLE_TRY(cost.collective, collectives_.Cost(*kind, given, stream.over));
      HEDDLE_TRY(const Curve* curve, collectives_.CurveOf(*kind, stream.over));
      if (index_) index_->UseCurve(curve);
      cost.measured = curve != nullptr;
      BucketCost packing = PackingOf(id, {});
      cost.pack = packing.length;
      cost.ahead = packing.ahead;
    }
    cost.stream = StreamOf(id, std::move(stream));
    return Done{};
  }

  CommStream TransferStream(NodeId id) const {
    bool sends = graph_[id].op == op::comm_send;
    CommStream stream;
    stream.kind = sends ? CommStream::Kind::kSend : CommStream::Kind::kReceive;
    stream.over = std::get<Axes>(*graph_.attrs(id).Find("over"));
    stream.peer = std::get<int64_t>(*graph_.attrs(id).Find(sends ? "to" : "from"));
    return stream;
  }

  Bytes ReceivedBytes(NodeId id) const {
    TypeId handle = graph_.type(graph_[id].first_result);
    return graph_.types().bytes(graph_.types().elements(handle)[0]);
  }

  void PriceWait(NodeId id) {
    NodeId start = graph_[graph_.operands(id)[0]].producer;
    if (start && CollectiveKindOf(graph_[start].op))
      costs_.nodes[id].compute = PackingOf(start, ResultBytes(graph_, id)).behind;
  }

  BucketCost PackingOf(NodeId start, Bytes result) const {
    PackedTensors packed{.gather = graph_[start].op == op::comm_all_gather,
                         .members = static_cast<int64_t>(graph_.operands(start).size()),
                         .given = OperandBytes(graph_, start),
                         .result = result};
    SetPacked(graph_, start, packed);
    return model_.Packing(packed);
  }

  void PriceKernel(NodeId id) {
    const CallCost& call = CallOf(id);
    costs_.nodes[id].compute = call.compute;
    costs_.nodes[id].measured = call.measured;
    costs_.ideal += call.ideal;
    if (graph_[id].phase == Phase::kForward) costs_.ideal_forward += call.ideal;
  }

  // How a call accesses memory; its time depends on this and on the types of its operands.
  enum Pattern : uint64_t { kPlain, kStrided, kOwnKernel, kOwnKernelToZero };

  Pattern PatternOf(NodeId id) const {
    OpId op = graph_[id].op;
    if (own_kernels_ && op == op::index_add) {
      std::optional<IndexAddRun> add = FindIndexAddRun(graph_, id);
      return !add ? kPlain : add->to_zero ? kOwnKernelToZero : kOwnKernel;
    }
    if (!strided_.contains(op)) return kPlain;
    bool strided = std::ranges::any_of(graph_.operands(id), [&](ValueId operand) {
      NodeId producer = operand ? graph_[SourceOf(graph_, operand)].producer : NodeId();
      return producer && graph_.op(producer).effect() == Effect::kView;
    });
    return strided ? kStrided : kPlain;
  }

  Nanos TimeOf(const OpArgs& args, const Types& results, OpId op, Pattern pattern) const {
    if (pattern == kPlain || pattern == kStrided) {
      double share = pattern == kStrided ? strided_.at(op) : 1;
      return KernelTime(device_, args, results, figures_.memory * share);
    }
    // Sums rows in registers, and does not read rows of zeros.
    Work work = InferWork(args, results);
    Bytes bytes = work.read + work.written;
    return StreamTime(device_, pattern == kOwnKernelToZero ? bytes - work.written : bytes);
  }

  const CallCost& CallOf(NodeId id) {
    const Pattern pattern = PatternOf(id);
    key_.Assign(graph_, id);
    key_.Add(pattern);
    // For an unknown op, result types do not follow from the operands.
    for (ValueId v : graph_.results(id)) key_.Add(graph_.type(v).index());
    const CallCost* known = calls_.Find(key_);
    return known != nullptr ? *known : calls_.Add(key_, Price(id, pattern));
  }

  CallCost Price(NodeId id, Pattern pattern) {
    Types results;
    for (ValueId v : graph_.results(id)) results.push_back(graph_.types()[graph_.type(v)]);
    OpArgs args(graph_.op(id), graph_.attrs(id), module_.mesh, symbols_,
                OperandTypes(graph_, graph_.operands(id)));
    CallCost call;
    call.compute = TimeOf(args, results, graph_[id].op, pattern);
    if (IsMatrixWork(graph_.op(id)))
      call.ideal = IdealTime(device_, args, InferWork(args, results).flops);
    std::optional<Nanos> time;
    if (index_ && index_->has_ops()) time = index_->Op(module_, graph_, id);
    if (time) call.compute = *time;
    call.measured = time.has_value();
    return call;
  }

  void TakeMeasuredNodes() {
    for (NodeId id : graph_.nodes()) {
      std::optional<Nanos> time = index_->Node(graph_, id);
      NodeCost& cost = costs_.nodes[id];
      if (!time || (model_.measured()->whole_graph && IsBucket(id))) continue;
      cost.measured = true;
      if (cost.stream == NodeCost::kCompute) {
        cost.compute = *time;
        continue;
      }
      // The measured time includes packing.
      cost.pack = {};
      cost.collective.latency = std::min(cost.collective.latency, *time);
      cost.collective.transfer = *time - cost.collective.latency;
    }
    costs_.measured = index_->Use();
  }

  // A start or wait of several tensors. It has the name of its first tensor.
  bool IsBucket(NodeId id) const {
    NodeId start = graph_[id].op == op::comm_wait ? graph_[graph_.operands(id)[0]].producer : id;
    return start && IsStart(graph_, start) && graph_.operands(start).size() > 1;
  }

  // Each collective waits for the slowest rank, and the slowest of more nodes is slower.
  void WaitForStragglers() {
    double times = 1 + device_.straggler * Log2(static_cast<double>(cluster_nodes_));
    if (times == 1) return;
    for (NodeId id : graph_.nodes()) {
      Nanos& time = costs_.nodes[id].compute;
      time = WholeNanos(static_cast<double>(time.value) * times);
    }
  }

  // The host launches kernels in order and may be ahead of the device by any number of them. A
  // kernel that it launches too late takes longer by the delay.
  void WaitForHost() {
    if (figures_.dispatch.value == 0) return;
    Nanos host;
    Nanos device;
    for (NodeId id : graph_.nodes()) {
      NodeCost& cost = costs_.nodes[id];
      if (cost.compute.value == 0 && cost.stream == NodeCost::kCompute) continue;
      if (!cost.in_kernel) host += figures_.dispatch;
      Nanos late = std::max(Nanos{}, host - device);
      device += late + cost.compute;
      if (cost.compute.value == 0) continue;
      cost.compute += late;
      costs_.host += late;
    }
  }

  void CountLaunches() {
    const TimelineRules& rules = model_.options().rules;
    if (rules.launch == Nanos{}) return;
    bool whole_graph = index_ && model_.measured()->whole_graph;
    for (NodeId id : graph_.nodes()) {
      NodeCost& cost = costs_.nodes[id];
      if (cost.stream != NodeCost::kCompute) {
        cost.collective.transfer += rules.launch;
        if (!rules.contention) cost.collective.links = Links::kNone;
      }
      // An import creates tensors for numbers among a call's arguments, which the measured graph
      // does not have.
      if (whole_graph && !cost.measured && graph_[id].op == op::scalar_tensor) {
        cost.compute = {};
        continue;
      }
      int64_t launches = 1;
      // A node with several results counts in addition to its results. A wait does not.
      size_t results = graph_[id].result_count;
      bool wait = graph_[id].op == op::comm_wait;
      if (results > 1 && rules.launch_per_result)
        launches += static_cast<int64_t>(wait ? results - 1 : results);
      cost.compute += rules.launch * launches;
      costs_.launches += rules.launch * launches;
    }
    costs_.around = rules.launch * static_cast<int64_t>(graph_.inputs().size() + 1);
    costs_.launches += costs_.around;
  }

  const CostModel& model_;
  const Device& device_;
  const ExecutionFigures& figures_;
  // Whether ops run as kernels of Heddle's where it has them.
  const bool own_kernels_ = model_.HasDeviceProgram();
  // Ops with a figure for strided operands.
  std::map<OpId, double> strided_;
  const Module& module_;
  const Graph& graph_;
  // Shape rules may add symbols.
  SymbolTable symbols_;
  CollectiveCosts collectives_;
  std::optional<MeasuredIndex> index_;
  GraphCosts costs_;
  int64_t cluster_nodes_ = 1;
  std::map<std::tuple<CommStream::Kind, Axes, uint8_t, int64_t>, uint32_t> streams_;
  CallKey key_;
  CallTable<CallCost> calls_;
};

}  // namespace

Result<GraphCosts> CostModel::Price(const Module& module, const Graph& graph) const {
  HEDDLE_TRY(std::optional<Graph> expected,
             WithExpectedRows(module.mesh, graph, options_.expert_skew));
  return GraphPricer(*this, module, expected ? *expected : graph).Run();
}

}  // namespace heddle::price
