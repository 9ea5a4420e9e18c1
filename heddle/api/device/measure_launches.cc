#include "heddle/api/device/measure_launches.h"

#include "heddle/run/runtime/device/launch_timer.h"
#include "heddle/run/runtime/device/own_kernels.h"

namespace heddle {

Result<std::vector<std::optional<double>>> MeasureLaunches(
    const ModelOptions& model, const PlannedStep& step, const LaunchList& list,
    const std::function<void(const std::string&)>& notice) {
  constexpr int kWarmUp = 2;
  constexpr int kMeasured = 5;
  constexpr uint64_t kSeed = 42;
  if (step.module.mesh.ranks() > 1 || step.micro_batches() > 1)
    return Error(Diag::kUsage,
                 "the step has {} ranks and {} micro-batches, but launches are measured for one of "
                 "each",
                 step.module.mesh.ranks(), step.micro_batches());
  HEDDLE_TRY(c10::Device device, model.Open(0));
  if (!device.is_cuda())
    return Error(Diag::kUsage, "{} is cpu, but launches are measured on cuda", kDeviceFlag);
  HEDDLE_TRY(std::unique_ptr<run::Kernels> kernels, run::OpenKernels(device, notice));
  run::LaunchTimer timer(device);
  run::SessionOptions options;
  options.program = {.device = device, .launched = timer.Observer()};
  options.kernels = [&](const Graph& graph, const auto& copies) {
    return run::ArrangeKernels(graph, *kernels, copies);
  };
  options.params = run::InitialParams(step.model, kSeed);
  options.batches = run::SyntheticBatches(step.model, kSeed);
  HEDDLE_TRY(run::Session session, run::Session::Make(step.model, step.module, options));
  for (int i = 0; i < kWarmUp + kMeasured; ++i) {
    if (i >= kWarmUp) timer.Start();
    HEDDLE_RETURN_IF_ERROR(session.Step(/*lr=*/1e-4));
    if (i >= kWarmUp) timer.Stop();
  }
  return timer.Times(list);
}

}  // namespace heddle
