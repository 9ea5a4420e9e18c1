// Transport: how the payloads of a collective get from rank to rank.
#pragma once

#include <memory>
#include <span>

#include "heddle/run/runtime/collective.h"
#include "heddle/run/runtime/communicator.h"

namespace heddle::run {

// A launch that is under way.
class Pending {
 public:
  virtual ~Pending() = default;
  // Waits for it. What each rank of this process received, in the order of the ranks that started it. Throws what goes wrong.
  virtual std::vector<Tensors> Finish() = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Starts a launch of the ranks of one group that live in this process, with what each of them sends, and of kRows how much of it
  // to whom. `node` is for messages.
  virtual std::unique_ptr<Pending> Start(NodeId node, CommunicatorId communicator,
                                         const Collective& collective,
                                         std::span<const int64_t> ranks, std::vector<Tensors> sends,
                                         std::span<const Shares> shares) = 0;
  // Whether a launch is over when it has been started.
  virtual bool finishes_at_once() const = 0;
};

}  // namespace heddle::run
