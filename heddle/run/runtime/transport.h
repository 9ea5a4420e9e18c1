// Transport: moves the payloads of collectives between ranks.
#pragma once

#include <memory>
#include <span>

#include "heddle/run/runtime/collective.h"
#include "heddle/run/runtime/communicator.h"

namespace heddle::run {

// A launch in flight.
class Pending {
 public:
  virtual ~Pending() = default;
  // Waits for the launch. Returns what each rank of this process received, in the order of the
  // ranks that started it. Throws if the launch failed.
  virtual std::vector<Tensors> Finish() = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Starts a launch for the ranks of one group that are in this process. `sends` are their
  // payloads. For row exchanges, `shares` are the elements per member. `node` is for error
  // messages.
  virtual std::unique_ptr<Pending> Start(NodeId node, CommunicatorId communicator,
                                         const Collective& collective,
                                         std::span<const int64_t> ranks, std::vector<Tensors> sends,
                                         std::span<const Shares> shares) = 0;
  // Whether launches are complete when Start returns.
  virtual bool finishes_at_once() const = 0;
};

}  // namespace heddle::run
