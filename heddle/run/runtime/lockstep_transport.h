// Moves payloads between ranks of one process: copies, and sums in a declared order.
#pragma once

#include "heddle/run/runtime/reducer.h"
#include "heddle/run/runtime/transport.h"

namespace heddle::run {

class LockstepTransport : public Transport {
 public:
  explicit LockstepTransport(Reducer reducer) : reducer_(reducer) {}

  std::unique_ptr<Pending> Start(NodeId node, CommunicatorId communicator,
                                 const Collective& collective, std::span<const int64_t> ranks,
                                 std::vector<Tensors> sends,
                                 std::span<const Shares> shares) override;
  bool finishes_at_once() const override { return true; }

 private:
  Reducer reducer_;
};

}  // namespace heddle::run
