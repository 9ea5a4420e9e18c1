// Captures and runs one step of a model, and writes parameters, inputs, loss and gradients to a
// safetensors file, for comparison with PyTorch: step_dump FAMILY FLAVOR PRECISION SEQ_LEN FILE
// [SIZE=VALUE...]
#include <cstdio>

#include <ATen/Parallel.h>

#include "heddle/core/base/file.h"
#include "heddle/run/aten/dtype.h"
#include "heddle/run/models/test/inputs.h"
#include "heddle/run/runtime/rank_program.h"
#include "heddle/run/train/safetensors.h"

namespace heddle {
namespace {

Status Dump(const std::vector<std::string>& args) {
  HEDDLE_TRY(run::ModelConfig config, run::FindModel(args[0], args[1]));
  for (size_t i = 5; i < args.size(); ++i) {
    size_t equals = args[i].find('=');
    std::string name = args[i].substr(0, equals);
    std::string value = args[i].substr(equals + 1);
    HEDDLE_RETURN_IF_ERROR(name == "rope_scaling.kind"
                               ? run::OverrideChoice(config, name, value)
                               : run::OverrideSize(config, name, std::stoll(value)));
  }
  run::StepNumerics numerics;
  numerics.compute = *ParseDType(args[2]);
  HEDDLE_TRY(run::Model model,
             run::MakeModel(config, {.batch = 2, .seq_len = std::stoll(args[3])}, numerics));
  HEDDLE_TRY(Module module, run::Capture(model.loss, model.params, model.inputs));
  HEDDLE_TRY(run::RankProgram program, run::RankProgram::Compile(module, module.graphs[0]));
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  std::vector<at::Tensor> values = run::InitParams(model, 7);
  for (size_t i = 0; i < values.size(); ++i) tensors.emplace_back(model.params[i].name, values[i]);
  std::vector<at::Tensor> inputs = run::MakeInputs(model, 7, 0);
  for (size_t i = 0; i < inputs.size(); ++i)
    tensors.emplace_back("input." + model.inputs[i].name, inputs[i]);
  values.insert(values.end(), inputs.begin(), inputs.end());
  HEDDLE_TRY(std::vector<at::Tensor> outputs, program.RunAlone(values));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Output& output = module.graphs[0].outputs()[i];
    std::string name = output.role == OutputRole::kLoss
                           ? "loss"
                           : "grad." + model.params[static_cast<size_t>(output.index)].name;
    tensors.emplace_back(name, outputs[i]);
  }
  // Rotation tables are complex numbers, which the format lacks.
  std::erase_if(tensors, [](const auto& named) { return named.second.is_complex(); });
  HEDDLE_TRY(std::string content, run::FormatSafetensors(tensors));
  return WriteFile(args[4], content);
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  if (argc < 6) return 1;
  at::set_num_threads(1);
  heddle::Status status = heddle::Dump(std::vector<std::string>(argv + 1, argv + argc));
  if (!status.ok()) std::fputs(Format(status.diagnostics()).c_str(), stderr);
  return status.ok() ? 0 : 1;
}
