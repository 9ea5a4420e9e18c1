#include "heddle/api/optimization_options.h"

#include "heddle/core/base/choice.h"
#include "heddle/run/runtime/device/graph_recorder.h"
#include "heddle/run/runtime/device/own_kernels.h"

namespace heddle {

Result<run::Reducer> OptimizationOptions::MakeReducer(bool processes,
                                                      c10::DeviceType device) const {
  HEDDLE_TRY(run::Reducer parsed, run::Reducer::Parse(reducer));
  if (processes && parsed.Format() != "gloo")
    return Error(Diag::kBadChoice, "--runtime.reducer is {}; processes add up as {}",
                 parsed.Format(), device == c10::kCPU ? "Gloo does: gloo" : "NCCL does");
  return parsed;
}

Result<run::OptimizerOptions> OptimizationOptions::Optimizer() const {
  HEDDLE_RETURN_IF_ERROR(Choose<bool>("--optimizer.name", optimizer_name, {{"adamw", true}}));
  run::OptimizerOptions options = optimizer;
  HEDDLE_TRY(
      options.implementation,
      (Choose<run::AdamW>("--optimizer.implementation", implementation,
                          {{"fused", run::AdamW::kFused}, {"for-loop", run::AdamW::kForLoop}})));
  return options;
}

std::function<Result<std::unique_ptr<run::RunRecorder>>()> OptimizationOptions::Recorder(
    c10::Device device) const {
  if (graph == "off" || !device.is_cuda()) return {};
  return [device] { return run::MakeGraphRecorder(device); };
}

std::unique_ptr<run::Kernels> OptimizationOptions::OwnKernels(
    c10::Device device, const std::function<void(const std::string&)>& notice) const {
  if (kernels == "off" || !device.is_cuda()) return nullptr;
  Result<std::unique_ptr<run::Kernels>> opened = run::OpenKernels(device, notice);
  if (opened.ok()) return *std::move(opened);
  notice("ATen runs every op: " + opened.diagnostics()[0].message);
  return nullptr;
}

Status OptimizationOptions::Check() const {
  HEDDLE_RETURN_IF_ERROR(
      Choose<bool>("--runtime.kernels", kernels, {{"auto", true}, {"off", false}}));
  HEDDLE_RETURN_IF_ERROR(Choose<bool>("--runtime.graph", graph, {{"auto", true}, {"off", false}}));
  if (hash_gradients && hashes.empty())
    return Error(Diag::kUsage, "--hash-gradients requires --hashes");
  return Done{};
}

}  // namespace heddle
