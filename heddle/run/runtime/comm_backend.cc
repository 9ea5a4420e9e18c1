#include "heddle/run/runtime/comm_backend.h"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "heddle/core/analysis/launch.h"
#include "heddle/core/ops/collectives.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/aten/dtype.h"
#include "heddle/run/aten/error_message.h"

namespace heddle::run {

class CommBackend::Launch : public Step {
 public:
  Launch(const CommBackend& backend, NodeId node)
      : Step(Turn::kTogether),
        plan_(backend.plan_),
        transport_(*backend.transport_),
        node_(node),
        communicator_(backend.communicators_.of(node)),
        groups_(backend.groups_[communicator_.index()]),
        collective_(plan_.mesh(), plan_.graph(), node),
        share_(backend.share_results_ && !plan_.is_written_over(node)),
        first_pending_(backend.launch_count_) {}

  size_t groups() const { return groups_.size(); }

  Status RunTogether(Running& running) const override {
    for (size_t g = 0; g < groups_.size(); ++g) HEDDLE_RETURN_IF_ERROR(Start(g, running));
    return Done{};
  }

  // Completes the launches of all groups, at the node that waits for them.
  Status Finish(NodeId wait, Running& running) const {
    for (size_t g = 0; g < groups_.size(); ++g) {
      try {
        StoreResults(groups_[g], running.pending[first_pending_ + g]->Finish(), wait, running);
      } catch (const std::exception& error) {
        return plan_.Fault(node_, groups_[g].ranks, {}, AtenErrorMessage(error));
      }
    }
    return Done{};
  }

 private:
  Status Start(size_t g, Running& running) const {
    const Group& group = groups_[g];
    std::unique_ptr<Pending>& pending = running.pending[first_pending_ + g];
    std::vector<Tensors> operands;
    for (size_t at : group.at)
      operands.push_back(plan_.slots().Operands(node_, running.values[at]));
    try {
      collective_.CheckSizes(operands);
      std::vector<Tensors> sends;
      std::vector<Shares> shares;
      for (size_t m = 0; m < group.at.size(); ++m) {
        shares.push_back(collective_.SharesOf(operands[m]));
        sends.push_back(collective_.Pack(operands[m], group.ranks[m]));
      }
      pending = transport_.Start(node_, communicator_, collective_, group.ranks, std::move(sends),
                                 shares);
      if (transport_.finishes_at_once()) StoreResults(group, pending->Finish(), node_, running);
    } catch (const std::exception& error) {
      return plan_.Fault(node_, group.ranks, operands, AtenErrorMessage(error));
    }
    return Done{};
  }

  // Unpacks received payloads into the slots of node `into`, which is the collective or its wait.
  void StoreResults(const Group& group, std::vector<Tensors> received, NodeId into,
                    Running& running) const {
    Tensors shared;
    for (size_t m = 0; m < group.at.size(); ++m) {
      bool reuse = m > 0 && share_ && collective_.equal_results();
      Tensors results = shared;
      if (!reuse) {
        Tensors operands = plan_.slots().Operands(node_, running.values[group.at[m]]);
        results = collective_.Unpack(received[m], operands, group.ranks[m], /*take=*/m == 0);
      }
      if (m == 0 && share_) shared = results;
      plan_.slots().Store(into, results, running.values[group.at[m]]);
    }
  }

  const RunPlan& plan_;
  Transport& transport_;
  NodeId node_;
  CommunicatorId communicator_;
  const std::vector<Group>& groups_;
  Collective collective_;
  // Whether members of a group share equal results.
  bool share_;
  // Index of its first group's launch in Running::pending.
  size_t first_pending_;
};

// A wait for a launch in flight.
class CommBackend::Wait : public Step {
 public:
  Wait(NodeId node, const Launch& launch) : Step(Turn::kTogether), node_(node), launch_(launch) {}
  Status RunTogether(Running& running) const override { return launch_.Finish(node_, running); }

 private:
  NodeId node_;
  const Launch& launch_;
};

// A wait for results that exist already.
class CommBackend::HandOn : public Step {
 public:
  HandOn(const RunPlan& plan, NodeId node) : Step(Turn::kAlone), plan_(plan), node_(node) {}

  void Run(size_t, Tensors& values, Scratch& scratch) const override {
    plan_.slots().Load(node_, values, scratch.operands);
    scratch.results.clear();
    for (const at::Tensor* tensor : scratch.operands) scratch.results.push_back(*tensor);
    plan_.slots().Store(node_, scratch.results, values);
  }

 private:
  const RunPlan& plan_;
  NodeId node_;
};

namespace {

// The other end of a transfer.
struct PeerCoordinate {
  PeerCoordinate(const RunPlan& plan, NodeId node, std::string_view end)
      : axis(std::get<Axes>(*plan.graph().attrs(node).Find("over"))[0]),
        coordinate(std::get<int64_t>(*plan.graph().attrs(node).Find(end))),
        tag(std::get<std::string>(*plan.graph().attrs(node).Find("tag"))) {
    for (size_t i = axis + size_t{1}; i < plan.mesh().axes().size(); ++i)
      stride *= plan.mesh().axes()[i].size;
    mesh = &plan.mesh();
  }
  int64_t RankFor(int64_t rank) const {
    return rank + (coordinate - mesh->Coordinate(rank, axis)) * stride;
  }

  const Mesh* mesh;
  AxisId axis;
  int64_t coordinate;
  std::string tag;
  int64_t stride = 1;
};

}  // namespace

// One end of a transfer, for all ranks of this process.
class CommBackend::TransferLaunch : public Step {
 public:
  TransferLaunch(const CommBackend& backend, NodeId node)
      : Step(Turn::kTogether),
        plan_(backend.plan_),
        transfers_(*backend.transfers_),
        node_(node),
        sends_(plan_.graph()[node].op == op::comm_send),
        share_(backend.share_results_),
        first_pending_(backend.launch_count_),
        peer_(plan_, node, sends_ ? "to" : "from") {
    if (sends_) return;
    const Graph& graph = plan_.graph();
    TypeId type = graph.types().elements(graph.type(graph[node].first_result))[0];
    std::span<const Dim> dims = graph.types().dims(type);
    sizes_.assign(dims.begin(), dims.end());
    type_ =
        at::TensorOptions().device(plan_.device()).dtype(ToScalarType(graph.types().dtype(type)));
  }

  Status RunTogether(Running& running) const override {
    for (size_t at = 0; at < plan_.ranks().size(); ++at) {
      try {
        running.pending[first_pending_ + at] = Start(at, running.values[at]);
      } catch (const std::exception& error) {
        return plan_.Fault(node_, plan_.ranks().subspan(at, 1), {}, AtenErrorMessage(error));
      }
    }
    return Done{};
  }

  // Completes the transfers, at the node that waits for them. A send leaves an empty receipt.
  Status Finish(NodeId wait, Running& running) const {
    for (size_t at = 0; at < plan_.ranks().size(); ++at) {
      try {
        Tensors result = running.pending[first_pending_ + at]->Finish()[0];
        running.pending[first_pending_ + at].reset();
        if (sends_)
          result = {at::empty({0}, at::TensorOptions().device(plan_.device()).dtype(at::kBool))};
        plan_.slots().Store(wait, result, running.values[at]);
      } catch (const std::exception& error) {
        return plan_.Fault(node_, plan_.ranks().subspan(at, 1), {}, AtenErrorMessage(error));
      }
    }
    return Done{};
  }

 private:
  std::unique_ptr<Pending> Start(size_t at, Tensors& values) const {
    int64_t rank = plan_.ranks()[at];
    int64_t other = peer_.RankFor(rank);
    if (!sends_) return transfers_.Receive({other, rank, peer_.tag}, sizes_, type_);
    at::Tensor tensor = plan_.slots().Operands(node_, values)[0];
    at::Tensor sent = tensor.contiguous();
    if (!share_ && sent.is_same(tensor)) sent = tensor.clone();
    return transfers_.Send({rank, other, peer_.tag}, std::move(sent));
  }

  const RunPlan& plan_;
  Transfers& transfers_;
  NodeId node_;
  bool sends_;
  // Whether coordinates of this process share the tensor.
  bool share_;
  // Index of its first rank's transfer in Running::pending.
  size_t first_pending_;
  PeerCoordinate peer_;
  // Sizes and type of a received tensor.
  std::vector<int64_t> sizes_;
  at::TensorOptions type_;
};

class CommBackend::TransferWait : public Step {
 public:
  TransferWait(NodeId node, const TransferLaunch& launch)
      : Step(Turn::kTogether), node_(node), launch_(launch) {}
  Status RunTogether(Running& running) const override { return launch_.Finish(node_, running); }

 private:
  NodeId node_;
  const TransferLaunch& launch_;
};

CommBackend::CommBackend(const RunPlan& plan, std::shared_ptr<Transport> transport,
                         std::shared_ptr<Transfers> transfers, bool share_results)
    : plan_(plan),
      transport_(std::move(transport)),
      transfers_(std::move(transfers)),
      share_results_(share_results),
      communicators_(plan.mesh(), plan.graph()),
      launches_(plan.graph().node_count(), nullptr),
      transfer_launches_(plan.graph().node_count(), nullptr) {
  for (const Communicator& communicator : communicators_.all()) {
    std::vector<Group>& groups = groups_.emplace_back();
    for (const std::vector<int64_t>& members : communicator.groups) {
      Group group;
      for (int64_t rank : members) {
        auto at = std::ranges::find(plan.ranks(), rank);
        if (at == plan.ranks().end()) continue;
        group.at.push_back(static_cast<size_t>(at - plan.ranks().begin()));
        group.ranks.push_back(rank);
      }
      if (!group.at.empty()) groups.push_back(std::move(group));
    }
  }
}

Result<CompiledNodes> CommBackend::Compile(NodeId node) {
  const Graph& graph = plan_.graph();
  if (graph[node].op == op::comm_wait) {
    NodeId start = graph[graph.operands(node)[0]].producer;
    if (start && transfer_launches_[start] != nullptr)
      return CompiledNodes{std::make_unique<TransferWait>(node, *transfer_launches_[start])};
    // Results exist already if the caller launched them or another backend computed them.
    const Launch* launch = start ? launches_[start] : nullptr;
    if (launch == nullptr || transport_->finishes_at_once())
      return CompiledNodes{std::make_unique<HandOn>(plan_, node)};
    return CompiledNodes{std::make_unique<Wait>(node, *launch)};
  }
  if (IsTransfer(graph, node)) {
    if (!transfers_)
      return Error(Diag::kRunFault,
                   "`%{}` is a transfer with another coordinate of a pipeline, which does not run "
                   "here",
                   graph.name(graph[node].first_result));
    auto launch = std::make_unique<TransferLaunch>(*this, node);
    transfer_launches_[node] = launch.get();
    launch_count_ += plan_.ranks().size();
    return CompiledNodes{std::move(launch)};
  }
  if (!CollectiveKindOf(graph[node].op)) return CompiledNodes{};
  if (graph.attrs(node).Find("sizes") != nullptr)
    return Error(
        Diag::kRunFault,
        "`%{}` exchanges parts of unequal sizes; Heddle can simulate such a graph but not run it",
        graph.name(graph[node].first_result));
  auto launch = std::make_unique<Launch>(*this, node);
  launches_[node] = launch.get();
  launch_count_ += launch->groups();
  return CompiledNodes{std::move(launch)};
}

}  // namespace heddle::run
