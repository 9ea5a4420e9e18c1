// Moves payloads between processes through c10d, with one process group per communicator.
#pragma once

#include <memory>

#include "heddle/run/runtime/process/group.h"
#include "heddle/run/runtime/process/peers.h"
#include "heddle/run/runtime/transport.h"

namespace heddle::run {

class ProcessTransport : public Transport {
 public:
  // Creates the groups of this rank, in the order of the communicators, which is the same on every
  // rank. `device` is the device of payloads. `peers` must outlive the transport.
  static Result<std::shared_ptr<ProcessTransport>> Connect(Peers& peers, const Mesh& mesh,
                                                           const Communicators& communicators,
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

  explicit ProcessTransport(Peers& peers) : peers_(peers) {}
  // Describes why a launch of the group failed, with the ranks that do not answer, if known.
  std::string Explain(const Group& group, const std::exception& error);

  Peers& peers_;
  bool failed_ = false;
  // By communicator.
  std::vector<Group> groups_;
};

}  // namespace heddle::run
