// AtenBackend: runs ATen ops. One call serves all ranks, unless an attribute depends on the rank.
#pragma once

#include "heddle/run/runtime/backend.h"

namespace heddle::run {

class AtenBackend : public Backend {
 public:
  explicit AtenBackend(const RunPlan& plan) : plan_(plan) {}

  // Accepts every node. Fails if libtorch lacks its op.
  Result<CompiledNodes> Compile(NodeId node) override;

 private:
  const RunPlan& plan_;
};

// A step for each node.
Result<std::vector<std::unique_ptr<Step>>> CompileWithAten(const RunPlan& plan,
                                                           std::span<const NodeId> nodes);

}  // namespace heddle::run
