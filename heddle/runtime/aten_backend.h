// AtenBackend: ops that ATen runs, one call for all ranks, or one for each where an attribute
// depends on the rank.
#pragma once

#include "heddle/runtime/backend.h"

namespace heddle {

class AtenBackend : public Backend {
 public:
  explicit AtenBackend(const RunPlan& plan) : plan_(plan) {}

  // Every op. Compiling fails if libtorch does not have it.
  bool Takes(NodeId) const override { return true; }
  Result<std::unique_ptr<Step>> Compile(NodeId node) override;

 private:
  const RunPlan& plan_;
};

}  // namespace heddle
