#include "heddle/run/runtime/process/process_transport.h"

#include <numeric>
#include <set>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/record_function.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "heddle/core/ir/program.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/runtime/process/own_address.h"
#include "heddle/run/runtime/process/within.h"

namespace heddle::run {
namespace {

c10d::ReduceOp ToReduceOp(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return c10d::ReduceOp::SUM;
    case ReduceOp::kAvg: return c10d::ReduceOp::AVG;
    case ReduceOp::kMax: return c10d::ReduceOp::MAX;
    case ReduceOp::kMin: return c10d::ReduceOp::MIN;
    case ReduceOp::kProduct: return c10d::ReduceOp::PRODUCT;
  }
  return c10d::ReduceOp::SUM;
}

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Number of distinct tags of messages in flight.
constexpr int kTags = 1 << 20;

// Starts sending a payload to all members, and receiving theirs directly into `received`. Copies
// only the member's own part.
void GatherDirectly(c10d::Backend& group, int tag, at::Tensor& send, at::Tensor& received,
                    std::vector<WorkPtr>& works) {
  int members = group.getSize();
  received = at::empty({members * send.numel()}, send.options());
  std::vector<at::Tensor> parts = received.chunk(members);
  if (send.numel() == 0) return;
  auto peer = [&](int distance) { return (group.getRank() + distance) % members; };
  for (int distance = 1; distance < members; ++distance) {
    // Receives first, from the rank that sends to this one first.
    std::vector<at::Tensor> part{parts[static_cast<size_t>(peer(members - distance))]};
    works.push_back(group.recv(part, peer(members - distance), tag));
  }
  std::vector<at::Tensor> sent{send};
  for (int distance = 1; distance < members; ++distance)
    works.push_back(group.send(sent, peer(distance), tag));
  parts[static_cast<size_t>(group.getRank())].copy_(send);
}

// Starts the communication of one payload, received into `received`.
WorkPtr Launch(c10d::Backend& group, const Collective& collective, at::Tensor& send,
               at::Tensor& received, const Shares& shares) {
  int64_t members = group.getSize();
  switch (collective.kind()) {
    case CollectiveKind::kAllGather:
      received = at::empty({members * send.numel()}, send.options());
      return group._allgather_base(received, send);
    case CollectiveKind::kReduceScatter: {
      received = at::empty({send.numel() / members}, send.options());
      c10d::ReduceScatterOptions options;
      options.reduceOp = ToReduceOp(collective.reduce());
      return group._reduce_scatter_base(received, send, options);
    }
    case CollectiveKind::kAllReduce: {
      received = send;
      std::vector<at::Tensor> tensors{send};
      c10d::AllreduceOptions options;
      options.reduceOp = ToReduceOp(collective.reduce());
      return group.allreduce(tensors, options);
    }
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kShift: break;
  }
  std::vector<int64_t> sent = shares.sent;
  std::vector<int64_t> comes = shares.received;
  if (collective.kind() == CollectiveKind::kShift) {
    // An exchange in which one part has all elements.
    sent.assign(static_cast<size_t>(members), 0);
    comes = sent;
    sent[static_cast<size_t>(collective.next(group.getRank()))] = send.numel();
    comes[static_cast<size_t>(collective.previous(group.getRank()))] = send.numel();
  }
  received = comes.empty() ? at::empty_like(send)
                           : at::empty({std::accumulate(comes.begin(), comes.end(), int64_t{0})},
                                       send.options());
  return group.alltoall_base(received, send, comes, sent);
}

}  // namespace

class ProcessTransport::Launched : public Pending {
 public:
  Launched(ProcessTransport& transport, Group& group) : transport_(transport), group_(group) {}

  void Add(const Collective& collective, at::Tensor send, const Shares& shares) {
    at::Tensor received;
    try {
      if (group_.sends_directly && collective.kind() == CollectiveKind::kAllGather) {
        TraceGather();
        GatherDirectly(*group_.group, group_.tag, send, received, works_);
        group_.tag = (group_.tag + 1) % kTags;
      } else {
        works_.push_back(Launch(*group_.group, collective, send, received, shares));
      }
    } catch (const std::exception& error) {
      throw std::runtime_error(transport_.Explain(group_, error));
    }
    sent_.push_back(std::move(send));
    received_.push_back(std::move(received));
  }

  std::vector<Tensors> Finish() override {
    try {
      RECORD_USER_SCOPE("heddle:wait");
      for (const WorkPtr& work : works_) work->wait();
    } catch (const std::exception& error) {
      throw std::runtime_error(transport_.Explain(group_, error));
    }
    gather_.reset();
    sent_.clear();
    std::vector<Tensors> received;
    received.push_back(std::move(received_));
    return received;
  }

 private:
  // Begins a span in the profiler's trace, which covers all messages of the launch.
  void TraceGather() {
    if (gather_) return;
    gather_ = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
    gather_->_setAsync();
    if (gather_->isActive()) gather_->before("heddle:all_gather");
  }

  ProcessTransport& transport_;
  Group& group_;
  std::vector<WorkPtr> works_;
  std::unique_ptr<at::RecordFunction> gather_;
  // Kept until completion, because the network reads them until then.
  Tensors sent_;
  Tensors received_;
};

// A transfer of an edge.
class ProcessTransport::Moving : public Pending {
 public:
  // `received` is undefined for a send.
  Moving(ProcessTransport& transport, Group& group, at::Tensor sent, at::Tensor received)
      : transport_(transport),
        group_(group),
        sent_(std::move(sent)),
        received_(std::move(received)) {
    try {
      std::vector<at::Tensor> tensors{received_.defined() ? received_ : sent_};
      if (tensors[0].numel() == 0) return;
      // NCCL has no complex types.
      if (tensors[0].is_complex()) tensors[0] = at::view_as_real(tensors[0]);
      work_ = received_.defined() ? group_.group->recv(tensors, 0, group_.tag)
                                  : group_.group->send(tensors, 1, group_.tag);
      group_.tag = (group_.tag + 1) % kTags;
    } catch (const std::exception& error) {
      throw std::runtime_error(transport_.Explain(group_, error));
    }
  }

  std::vector<Tensors> Finish() override {
    try {
      if (work_) work_->wait();
    } catch (const std::exception& error) {
      throw std::runtime_error(transport_.Explain(group_, error));
    }
    return {received_.defined() ? Tensors{std::move(received_)} : Tensors{}};
  }

 private:
  ProcessTransport& transport_;
  Group& group_;
  // Kept until completion, because the network reads or writes them until then.
  at::Tensor sent_;
  at::Tensor received_;
  WorkPtr work_;
};

namespace {

// The pairs of coordinates between which programs of the module send, in ascending order.
std::set<std::pair<size_t, size_t>> Edges(const Module& module) {
  std::set<std::pair<size_t, size_t>> edges;
  for (size_t at = 0; at < module.graphs.size(); ++at) {
    const Graph& graph = module.graphs[at];
    for (NodeId node : graph.nodes()) {
      if (graph[node].op != op::comm_send) continue;
      edges.emplace(at, std::get<int64_t>(*graph.attrs(node).Find("to")));
    }
  }
  return edges;
}

}  // namespace

GroupPtr ProcessTransport::JoinGloo(const StorePtr& store, int64_t own, int64_t size) const {
  // Gloo tries to connect several times, and waits for the whole timeout each time.
  auto make = [store, own, size, timeout = peers_.timeout(), addresses = addresses_] {
    return MakeGlooGroup(store, own, size, timeout, addresses);
  };
  std::optional<GroupPtr> group = Within<GroupPtr>(peers_.timeout(), make);
  if (!group)
    throw std::runtime_error(fmt::format("no connection within {} ms", peers_.timeout().count()));
  return *std::move(group);
}

Result<ProcessTransport::Group> ProcessTransport::Join(std::vector<int64_t> members,
                                                       const std::string& prefix,
                                                       const std::string& what) {
  Group group;
  group.members = std::move(members);
  auto own = std::ranges::find(group.members, peers_.rank()) - group.members.begin();
  auto size = static_cast<int64_t>(group.members.size());
  auto store = c10::make_intrusive<c10d::PrefixStore>(prefix, peers_.store());
  try {
    group.group = device_ == c10::kCPU ? JoinGloo(store, own, size)
                                       : MakeNcclGroup(store, own, size, peers_.timeout());
  } catch (const std::exception& error) {
    return Error(Diag::kPeers, "rank {} cannot join {}: {}", peers_.rank(), what,
                 Explain(group, error));
  }
  return group;
}

// NCCL connects two ranks during their first transfer, which blocks the host until both have begun
// it. A step uses edges in different orders on different ranks, so each edge makes its first
// transfer here, in an order that all ranks share.
Status ProcessTransport::Open(Group& edge, const std::string& what) {
  const bool sends = edge.group->getRank() == 0;
  at::Tensor token = at::empty({1}, at::TensorOptions(device_));
  try {
    Moving(*this, edge, sends ? token : at::Tensor(), sends ? at::Tensor() : token).Finish();
  } catch (const std::exception& error) {
    return Error(Diag::kPeers, "rank {} cannot open {}: {}", peers_.rank(), what, error.what());
  }
  return Done{};
}

Result<std::shared_ptr<ProcessTransport>> ProcessTransport::Connect(Peers& peers,
                                                                    const Module& module,
                                                                    c10::DeviceType device) {
  const Mesh& mesh = module.mesh;
  std::shared_ptr<ProcessTransport> transport(new ProcessTransport(peers, device));
  if (device == c10::kCPU) {
    HEDDLE_TRY(transport->addresses_, OwnAddresses(peers));
  }
  // Programs of several coordinates have different numbers of communicators.
  int64_t number = peers.NextNumber();
  Communicators communicators(mesh, ProgramOf(module, peers.rank()));
  for (const Communicator& communicator : communicators.all()) {
    std::vector<int64_t> members = communicator.GroupOf(peers.rank());
    // The first member distinguishes the groups of a communicator.
    std::string prefix =
        fmt::format("group/{}/{}/{}", number, transport->groups_.size(), members[0]);
    HEDDLE_TRY(Group group,
               transport->Join(std::move(members), prefix,
                               fmt::format("communicator {}", Format(mesh, communicator))));
    group.sends_directly = device == c10::kCPU;
    transport->groups_.push_back(std::move(group));
  }
  std::optional<AxisId> axis = ProgramAxis(module);
  if (!axis) return transport;
  // The ranks of the other coordinates that this one exchanges tensors with, by coordinate.
  Communicator line{Axes(*axis), 0, Groups(mesh, Axes(*axis))};
  const std::vector<int64_t>& ranks = line.GroupOf(peers.rank());
  for (auto [from, to] : Edges(module)) {
    std::vector<int64_t> ends = {ranks[from], ranks[to]};
    if (std::ranges::find(ends, peers.rank()) == ends.end()) continue;
    const std::string what = fmt::format("the edge from rank {} to rank {}", ends[0], ends[1]);
    HEDDLE_TRY(Group group,
               transport->Join(ends, fmt::format("edge/{}/{}/{}", number, ends[0], ends[1]), what));
    if (device != c10::kCPU) HEDDLE_RETURN_IF_ERROR(transport->Open(group, what));
    transport->edges_.emplace(std::pair(ends[0], ends[1]), std::move(group));
  }
  return transport;
}

ProcessTransport::~ProcessTransport() {
  if (!failed_) return;
  for (Group& group : groups_) group.group.release();
  for (auto& [ends, group] : edges_) group.group.release();
}

std::string ProcessTransport::Explain(const Group& group, const std::exception& error) {
  failed_ = true;
  std::string missing = peers_.watch().Missing(group.members);
  if (missing.empty()) {
    // Another member may wait for a rank of another group, as along a pipeline.
    std::vector<int64_t> all(static_cast<size_t>(peers_.world_size()));
    std::iota(all.begin(), all.end(), 0);
    missing = peers_.watch().Missing(all);
  }
  return fmt::format("{}; participating ranks: {}; c10d reports: {}",
                     missing.empty()
                         ? "it did not complete, although all ranks answer; two of them "
                           "may not reach each other"
                         : missing,
                     peers_.watch().NamesOf(group.members), C10dErrorMessage(error));
}

std::unique_ptr<Pending> ProcessTransport::Start(NodeId, CommunicatorId communicator,
                                                 const Collective& collective,
                                                 std::span<const int64_t>,
                                                 std::vector<Tensors> sends,
                                                 std::span<const Shares> shares) {
  auto launched = std::make_unique<Launched>(*this, groups_[communicator.index()]);
  for (at::Tensor& send : sends[0]) launched->Add(collective, std::move(send), shares[0]);
  return launched;
}

std::unique_ptr<Pending> ProcessTransport::Send(const Transfer& transfer, at::Tensor tensor) {
  return std::make_unique<Moving>(*this, edges_.at({transfer.from, transfer.to}), std::move(tensor),
                                  at::Tensor());
}

std::unique_ptr<Pending> ProcessTransport::Receive(const Transfer& transfer, at::IntArrayRef sizes,
                                                   const at::TensorOptions& type) {
  return std::make_unique<Moving>(*this, edges_.at({transfer.from, transfer.to}), at::Tensor(),
                                  at::empty(sizes, type));
}

}  // namespace heddle::run
