// LocalBackend: Heddle's own ops that a rank runs alone: its part of a tensor, bounds of its part,
// moves between memories.
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
