// LocalBackend: Heddle's own ops without communication: a rank's shard of a tensor, bounds of its
// shard, and copies between memory spaces. On a GPU also aten.bincount.
#pragma once

#include "heddle/run/runtime/backend.h"

namespace heddle::run {

// How often each number below `size` occurs among `numbers`, all of which are below it: as
// aten.bincount, without waiting for the device.
at::Tensor CountNumbers(const at::Tensor& numbers, int64_t size);

class LocalBackend : public Backend {
 public:
  explicit LocalBackend(const RunPlan& plan) : plan_(plan) {}

  Result<CompiledNodes> Compile(NodeId node) override;

 private:
  const RunPlan& plan_;
};

}  // namespace heddle::run
