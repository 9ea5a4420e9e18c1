// Runs one call whole on one rank, and split on all ranks, with random numbers.
#pragma once

#include <random>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/run/runtime/rank_program.h"
#include "test/parallel/op_call.h"

namespace heddle {

class OpRun {
 public:
  // Fails if ATen does not run the call on this device.
  static Result<OpRun> Make(OpCall call, uint32_t seed, c10::Device device = c10::kCPU);

  const OpCall& call() const { return call_; }

  // Runs `insert-redistributions, lower, localize` on a global graph of the call, then the local
  // graph on ranks, and compares its outputs with the whole ones: within `tolerance` of the largest
  // element, bitwise for 0, or only their sizes if it is infinite. `operands` are the global
  // placements of the operands. The summands of a pending sum are random.
  struct Outcome {
    // The fault; empty if there is none.
    std::string error;
    // Number of collectives.
    int collectives = 0;
  };
  // Compares only the first `compared` outputs.
  Outcome Check(Module global, const std::vector<Placement>& operands, double tolerance,
                size_t compared = SIZE_MAX) const;

 private:
  OpRun(OpCall call, uint32_t seed, c10::Device device)
      : call_(std::move(call)), device_(device), random_(seed) {}

  // By flat operand: the whole tensor, and each rank's shard.
  struct Operand {
    at::Tensor whole;
    std::vector<at::Tensor> parts;
  };
  Operand MakeOperand(size_t i, const Placement& placement, const Mesh& mesh) const;
  Result<std::vector<at::Tensor>> RunWhole(const std::vector<at::Tensor>& inputs) const;

  OpCall call_;
  c10::Device device_;
  // Numbers differ from case to case.
  mutable std::mt19937 random_;
  std::optional<run::RankProgram> whole_;
};

// Whether two tensors agree up to `tolerance`, relative to the largest element of `b`. NaN equals
// NaN.
bool AreClose(const at::Tensor& a, const at::Tensor& b, double tolerance);

}  // namespace heddle
