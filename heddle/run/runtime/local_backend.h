// LocalBackend: Heddle's own ops without communication: a rank's shard of a tensor, bounds of its
// shard, and copies between memory spaces.
#pragma once

#include "heddle/run/runtime/backend.h"

namespace heddle::run {

class LocalBackend : public Backend {
 public:
  explicit LocalBackend(const RunPlan& plan) : plan_(plan) {}

  Result<CompiledNodes> Compile(NodeId node) override;

 private:
  const RunPlan& plan_;
};

}  // namespace heddle::run
