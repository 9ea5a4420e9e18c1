// Program: a graph compiled for running. For each node the bound ATen call, the slots it reads and writes, and what can be let go
// after it. The inner loop does nothing else.
#pragma once

#include <span>
#include <vector>

#include "heddle/aten/call.h"
#include "heddle/base/result.h"
#include "heddle/ir/graph.h"

namespace heddle {

class Program {
 public:
  // A graph of one rank, without collectives.
  static Result<Program> Compile(const Module& module, const Graph& graph,
                                 c10::Device device = c10::kCPU);

  // Inputs and outputs in the order of the graph's. Fails with the node, its arguments and what ATen said.
  Result<std::vector<at::Tensor>> Run(std::span<const at::Tensor> inputs) const;

 private:
  struct Step {
    AtenCall call;
    NodeId node;
    // Into operands_, and the first of the consecutive values it makes.
    uint32_t first_operand;
    uint32_t operand_count;
    uint32_t first_result;
    uint32_t result_count;
    // Values that nothing needs after this step, into released_.
    uint32_t first_released;
    uint32_t released_count;
  };

  explicit Program(Module module) : module_(std::move(module)) {}
  const Graph& graph() const { return module_.graphs[0]; }
  void PlanReleases();
  Failure Describe(const Step& step, std::span<const at::Tensor> operands, const char* what) const;

  // A copy, for messages.
  Module module_;
  std::vector<Step> steps_;
  // Value numbers; UINT32_MAX for an absent operand.
  std::vector<uint32_t> operands_;
  std::vector<uint32_t> released_;
};

}  // namespace heddle
