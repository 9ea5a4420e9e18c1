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

// Moves tensors between the coordinates of a pipeline. Both ends of an edge, from one rank to
// another, start its transfers in the same order.
class Transfers {
 public:
  struct Transfer {
    int64_t from;
    int64_t to;
    const std::string& tag;
  };

  virtual ~Transfers() = default;
  // Starts sending a contiguous tensor. The result finishes when the tensor is no longer needed,
  // and receives nothing.
  virtual std::unique_ptr<Pending> Send(const Transfer& transfer, at::Tensor tensor) = 0;
  // Starts receiving a tensor of this type.
  virtual std::unique_ptr<Pending> Receive(const Transfer& transfer, at::IntArrayRef sizes,
                                           const at::TensorOptions& type) = 0;
};

}  // namespace heddle::run
