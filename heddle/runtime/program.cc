#include "heddle/runtime/program.h"

#include <ATen/core/grad_mode.h>

#include "heddle/ir/print.h"
#include "heddle/runtime/fault.h"

namespace heddle {

Result<Program> Program::Compile(const Module& module, const Graph& graph, c10::Device device) {
  Program program(Module{module.view, module.mesh, {graph}});
  for (NodeId id : graph.nodes()) {
    HEDDLE_TRY(AtenCall call, AtenCall::Bind(module, graph, id, device));
    program.calls_.Add(std::move(call));
  }
  return program;
}

Result<std::vector<at::Tensor>> Program::Run(std::span<const at::Tensor> inputs) const {
  HEDDLE_CHECK(inputs.size() == graph().inputs().size(),
               "a program was run with another number of inputs than it has");
  at::NoGradGuard no_grad;
  Tensors values = slots_.Start(inputs);
  Tensors operands;
  Tensors results;
  for (NodeId id : graph().nodes()) {
    slots_.Load(id, values, operands);
    try {
      calls_[id].Run(operands, results);
    } catch (const std::exception& error) {
      return RunFault(module_, graph(), id, "", error.what(), OperandLines(operands));
    }
    HEDDLE_CHECK(results.size() == slots_.result_count(id), PrintNode(module_, graph(), id));
    operands.clear();
    slots_.Store(id, results, values);
  }
  return slots_.Outputs(values);
}

}  // namespace heddle
