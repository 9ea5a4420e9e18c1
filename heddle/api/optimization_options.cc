#include "heddle/api/optimization_options.h"

#include "heddle/run/runtime/device/graph_recorder.h"
#include "heddle/run/runtime/device/own_kernels.h"

namespace heddle {

Result<run::Reducer> OptimizationOptions::MakeReducer(bool processes,
                                                      c10::DeviceType device) const {
  HEDDLE_TRY(run::Reducer parsed, run::Reducer::Parse(reducer));
  if (processes && parsed.Format() != "gloo")
    return Error(Diag::kBadChoice, "--runtime.reducer is {}, but processes reduce as {}",
                 parsed.Format(), device == c10::kCPU ? "Gloo does: gloo" : "NCCL does");
  return parsed;
}

std::function<Result<std::unique_ptr<run::RunRecorder>>()> OptimizationOptions::Recorder(
    c10::Device device) const {
  if (!graph || !device.is_cuda()) return {};
  return [device] { return run::MakeGraphRecorder(device); };
}

std::unique_ptr<run::Kernels> OptimizationOptions::OwnKernels(
    c10::Device device, const std::function<void(const std::string&)>& notice) const {
  if (!kernels || !device.is_cuda()) return nullptr;
  Result<std::unique_ptr<run::Kernels>> opened = run::OpenKernels(device, notice);
  if (opened.ok()) return *std::move(opened);
  notice("ATen runs every op: " + opened.diagnostics()[0].message);
  return nullptr;
}

}  // namespace heddle
