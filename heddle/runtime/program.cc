#include "heddle/runtime/program.h"

#include <ATen/core/grad_mode.h>

#include "heddle/ir/print.h"

namespace heddle {
namespace {

constexpr uint32_t kAbsent = UINT32_MAX;

std::string TensorText(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::string sizes;
  for (int64_t size : tensor.sizes()) sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
  return fmt::format("{}[{}] on {}", c10::toString(tensor.scalar_type()), sizes,
                     tensor.device().str());
}

}  // namespace

Result<Program> Program::Compile(const Module& module, const Graph& graph, c10::Device device) {
  Program program(Module{module.view, module.mesh, {graph}});
  for (NodeId id : graph.nodes()) {
    HEDDLE_TRY(AtenCall call, AtenCall::Bind(module, graph, id, device));
    const Node& node = graph[id];
    program.steps_.push_back({std::move(call), id, static_cast<uint32_t>(program.operands_.size()),
                              node.operand_count, node.first_result.index(), node.result_count, 0,
                              0});
    for (ValueId v : graph.operands(id)) program.operands_.push_back(v ? v.index() : kAbsent);
  }
  program.PlanReleases();
  return program;
}

void Program::PlanReleases() {
  // Each value is let go after its last use; what is never used, after the step that made it. Outputs stay.
  std::vector<uint32_t> last(graph().value_count(), kAbsent);
  for (uint32_t s = 0; s < steps_.size(); ++s) {
    for (uint32_t i = 0; i < steps_[s].result_count; ++i) last[steps_[s].first_result + i] = s;
    for (uint32_t i = 0; i < steps_[s].operand_count; ++i) {
      uint32_t value = operands_[steps_[s].first_operand + i];
      if (value != kAbsent) last[value] = s;
    }
  }
  for (const Output& output : graph().outputs()) last[output.value.index()] = kAbsent;
  std::vector<std::vector<uint32_t>> by_step(steps_.size());
  for (uint32_t value = 0; value < last.size(); ++value) {
    if (last[value] != kAbsent) by_step[last[value]].push_back(value);
  }
  for (size_t s = 0; s < steps_.size(); ++s) {
    steps_[s].first_released = static_cast<uint32_t>(released_.size());
    steps_[s].released_count = static_cast<uint32_t>(by_step[s].size());
    released_.insert(released_.end(), by_step[s].begin(), by_step[s].end());
  }
}

Result<std::vector<at::Tensor>> Program::Run(std::span<const at::Tensor> inputs) const {
  HEDDLE_CHECK(inputs.size() == graph().inputs().size(),
               "a program was run with another number of inputs than it has");
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> values(graph().value_count());
  std::copy(inputs.begin(), inputs.end(), values.begin());
  std::vector<at::Tensor> operands;
  std::vector<at::Tensor> results;
  for (const Step& step : steps_) {
    operands.clear();
    for (uint32_t i = 0; i < step.operand_count; ++i) {
      uint32_t value = operands_[step.first_operand + i];
      operands.push_back(value == kAbsent ? at::Tensor() : values[value]);
    }
    try {
      step.call.Run(operands, results);
    } catch (const std::exception& error) {
      return Describe(step, operands, error.what());
    }
    HEDDLE_CHECK(results.size() == step.result_count, PrintNode(module_, graph(), step.node));
    for (uint32_t i = 0; i < step.result_count; ++i)
      values[step.first_result + i] = std::move(results[i]);
    operands.clear();
    for (uint32_t i = 0; i < step.released_count; ++i)
      values[released_[step.first_released + i]].reset();
  }
  std::vector<at::Tensor> outputs;
  for (const Output& output : graph().outputs()) outputs.push_back(values[output.value.index()]);
  return outputs;
}

Failure Program::Describe(const Step& step, std::span<const at::Tensor> operands,
                          const char* what) const {
  std::string text = what;
  std::string arguments;
  for (size_t i = 0; i < operands.size(); ++i)
    arguments += fmt::format("\n  operand {}: {}", i, TensorText(operands[i]));
  return Error(Diag::kRunFault, "node {} failed: {}\n  {}{}", step.node.index(),
               text.substr(0, text.find('\n')), PrintNode(module_, graph(), step.node), arguments);
}

}  // namespace heddle
