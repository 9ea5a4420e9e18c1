// Payloads between processes, through c10d: one process group for each communicator of a graph.
#pragma once

#include <memory>

#include "heddle/run/runtime/process/group.h"
#include "heddle/run/runtime/process/peers.h"
#include "heddle/run/runtime/transport.h"

namespace heddle::run {

class ProcessTransport : public Transport {
 public:
  // Makes the groups that this rank is in, in the order of the communicators: the same on every rank. `device` is where payloads
  // are. `peers` outlives it.
  static Result<std::shared_ptr<ProcessTransport>> Connect(Peers& peers, const Mesh& mesh,
                                                           const Communicators& communicators,
                                                           c10::DeviceType device);

  // After a failure, groups are left to the end of the process: taking them down would wait for launches that cannot complete.
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
    // Gathers are messages between each two members: several times as many as a ring has steps, but none waits for another.
    bool sends_directly = false;
    // Of the next message.
    int tag = 0;
  };
  class Launched;

  explicit ProcessTransport(Peers& peers) : peers_(peers) {}
  // What to say when a launch of the group failed: who does not answer, if that can be known.
  std::string Explain(const Group& group, const std::exception& error);

  Peers& peers_;
  bool failed_ = false;
  // By communicator.
  std::vector<Group> groups_;
};

}  // namespace heddle::run
