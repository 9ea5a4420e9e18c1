// Moves payloads between processes through c10d, with one process group per communicator, and one
// per pair of ranks that an edge of a pipeline joins.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "heddle/run/runtime/process/group.h"
#include "heddle/run/runtime/process/peers.h"
#include "heddle/run/runtime/transport.h"

namespace heddle::run {

class ProcessTransport : public Transport, public Transfers {
 public:
  // Creates the groups of this rank for a local module. All ranks create their groups in one order,
  // because each waits for its members. `device` is the device of payloads. `peers` must outlive
  // the transport.
  static Result<std::shared_ptr<ProcessTransport>> Connect(Peers& peers, const Module& module,
                                                           c10::DeviceType device);

  // After a failure, the groups are leaked: destroying them would wait for launches that cannot
  // complete.
  ~ProcessTransport() override;
  ProcessTransport(const ProcessTransport&) = delete;
  ProcessTransport& operator=(const ProcessTransport&) = delete;

  std::unique_ptr<Pending> Start(NodeId node, CommunicatorId communicator,
                                 const Collective& collective, std::span<const int64_t> ranks,
                                 std::vector<Tensors> sends,
                                 std::span<const Shares> shares) override;
  bool finishes_at_once() const override { return false; }
  std::unique_ptr<Pending> Send(const Transfer& transfer, at::Tensor tensor) override;
  std::unique_ptr<Pending> Receive(const Transfer& transfer, at::IntArrayRef sizes,
                                   const at::TensorOptions& type) override;

 private:
  struct Group {
    std::vector<int64_t> members;
    GroupPtr group;
    // Gathers use point-to-point messages between all pairs of members. There are more messages
    // than a ring has steps, but none waits for another.
    bool sends_directly = false;
    // Tag of the next message.
    int tag = 0;
  };
  class Launched;
  class Moving;

  ProcessTransport(Peers& peers, c10::DeviceType device) : peers_(peers), device_(device) {}
  // Throws if not all members are connected within the timeout.
  GroupPtr JoinGloo(const StorePtr& store, int64_t own, int64_t size) const;
  // Joins the group of `members`, which `what` describes. `prefix` distinguishes it from others.
  Result<Group> Join(std::vector<int64_t> members, const std::string& prefix,
                     const std::string& what);
  // Makes the first transfer of an edge between GPUs.
  Status Open(Group& edge, const std::string& what);
  // Describes why a launch of the group failed, with the ranks that do not answer, if known.
  std::string Explain(const Group& group, const std::exception& error);

  Peers& peers_;
  c10::DeviceType device_;
  // Where this rank accepts connections, on CPUs.
  std::vector<std::string> addresses_;
  bool failed_ = false;
  // By communicator.
  std::vector<Group> groups_;
  // By sending and receiving rank. This rank is one of them.
  std::map<std::pair<int64_t, int64_t>, Group> edges_;
};

}  // namespace heddle::run
