// Program: a graph compiled for running on one rank. For each node the bound ATen call, the slots it reads and fills, and what
// can be let go after it. The inner loop does nothing else.
#pragma once

#include <span>
#include <vector>

#include "heddle/aten/call.h"
#include "heddle/base/result.h"
#include "heddle/ir/graph.h"
#include "heddle/runtime/slots.h"

namespace heddle {

class Program {
 public:
  // A graph of one rank, without collectives.
  static Result<Program> Compile(const Module& module, const Graph& graph,
                                 c10::Device device = c10::kCPU);

  // Inputs and outputs in the order of the graph's. Fails with the node, its arguments and what ATen said.
  Result<std::vector<at::Tensor>> Run(std::span<const at::Tensor> inputs) const;

 private:
  explicit Program(Module module) : module_(std::move(module)), slots_(graph()) {}
  const Graph& graph() const { return module_.graphs[0]; }

  // A copy, for messages.
  Module module_;
  SlotPlan slots_;
  Table<NodeId, AtenCall> calls_;
};

}  // namespace heddle
