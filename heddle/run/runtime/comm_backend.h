// CommBackend: collectives and waits.
//
// A collective is launched at its node and completed at its wait. If the transport finishes
// immediately, the results exist after the launch, and the wait forwards them.
#pragma once

#include <memory>
#include <vector>

#include "heddle/run/runtime/backend.h"

namespace heddle::run {

class CommBackend : public Backend {
 public:
  // `share_results`: ranks share the storage of results that are equal on all of them, unless it is
  // overwritten later.
  // `transfers` are those between the coordinates of a pipeline, if there are any.
  CommBackend(const RunPlan& plan, std::shared_ptr<Transport> transport,
              std::shared_ptr<Transfers> transfers, bool share_results);

  Result<CompiledNodes> Compile(NodeId node) override;

  // Number of launches per run, which is the size of Running::pending.
  size_t launch_count() const { return launch_count_; }

 private:
  // The members of a communicator's group in this process: positions in RunPlan::ranks(), and
  // ranks.
  struct Group {
    std::vector<size_t> at;
    std::vector<int64_t> ranks;
  };
  class Launch;
  class Wait;
  class HandOn;
  class TransferLaunch;
  class TransferWait;

  const RunPlan& plan_;
  std::shared_ptr<Transport> transport_;
  std::shared_ptr<Transfers> transfers_;
  bool share_results_;
  Communicators communicators_;
  // By communicator.
  std::vector<std::vector<Group>> groups_;
  // By node; null for nodes that start no collective.
  Table<NodeId, const Launch*> launches_;
  // By node; null for nodes that are not ends of a transfer.
  Table<NodeId, const TransferLaunch*> transfer_launches_;
  size_t launch_count_ = 0;
};

}  // namespace heddle::run
