#include "heddle/run/runtime/device/matmul_tuner.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "heddle/run/aten/error_message.h"
#include "heddle/run/runtime/device/same_numbers.h"

namespace heddle::run {
namespace {

// Products per measurement, and the bytes that are written before each.
constexpr size_t kProducts = 9;
constexpr int64_t kWrittenBytes = 512 << 20;
constexpr size_t kFinalists = 4;
constexpr size_t kRounds = 7;
// Smaller gains are within the noise of a measurement.
constexpr double kLeastGain = 0.01;

class CudaMatmulTuner : public MatmulTuner {
 public:
  CudaMatmulTuner(const CudaDriver& driver, const Nvrtc& nvrtc, const BlasLt& library,
                  std::string architecture, c10::Device device)
      : library_(library),
        device_(driver, nvrtc, std::move(architecture), device),
        streams_(device.type()),
        choices_(FileCache::DefaultFolder(), MatmulMachine(library, device_)),
        written_(at::empty({kWrittenBytes}, at::TensorOptions(at::kByte).device(device))) {}

  std::optional<MatmulChoice> Find(const MatmulShape& shape) const override {
    return choices_.Find(shape);
  }

  Result<MatmulChoice> Tune(const MatmulShape& shape) const override {
    at::NoGradGuard no_grad;
    try {
      HEDDLE_TRY(MatmulChoice choice, Measure(shape));
      HEDDLE_RETURN_IF_ERROR(choices_.Store(shape, choice));
      return choice;
    } catch (const std::exception& error) {
      return Error(Diag::kEnvironment, "cannot measure {}: {}", shape.Format(),
                   AtenErrorMessage(error));
    }
  }

 private:
  // A way to compute the product: ATen's, or an algorithm.
  struct Contender {
    std::optional<MatmulAlgorithm> algorithm;
    std::function<void()> run;
    // Microseconds per product, one for each round.
    std::vector<double> times = {};

    double time() const {
      std::vector<double> sorted = times;
      std::ranges::sort(sorted);
      return sorted[sorted.size() / 2];
    }
  };

  Result<MatmulChoice> Measure(const MatmulShape& shape) const {
    auto [a, b] = MakeOperands(shape, device_.device());
    at::Tensor expected = at::mm(a, b);
    at::Tensor result = at::empty_like(expected);
    std::array<at::Tensor, 2> inputs = {a, b};
    std::vector<Contender> contenders;
    contenders.push_back({std::nullopt, [&] { at::mm_out(result, a, b); }});
    HEDDLE_TRY(LtMatmul product, LtMatmul::Make(library_, shape));
    HEDDLE_TRY(std::vector<MatmulAlgorithm> algorithms, product.Algorithms());
    for (const MatmulAlgorithm& algorithm : algorithms) {
      Result<std::unique_ptr<GroupKernel>> made =
          MakeMatmulKernel(library_, device_, shape, algorithm);
      if (!made.ok()) continue;
      result.zero_();
      (*made)->Run(inputs, {&result, 1});
      if (!SameNumbers(result, expected)) continue;
      std::shared_ptr<GroupKernel> kernel = *std::move(made);
      contenders.push_back({algorithm, [&inputs, &result, kernel] {
                              kernel->Run(inputs, {&result, 1});
                            }});
    }
    return Race(std::move(contenders));
  }

  // Measures all once, then the best of them in turn, because a GPU's clock changes with time.
  MatmulChoice Race(std::vector<Contender> contenders) const {
    for (Contender& contender : contenders) contender.times = {Time(contender)};
    std::ranges::stable_sort(contenders.begin() + 1, contenders.end(), {}, &Contender::time);
    contenders.resize(std::min(contenders.size(), kFinalists + 1));
    for (Contender& contender : contenders) contender.times.clear();
    for (size_t round = 0; round < kRounds; ++round) {
      for (Contender& contender : contenders) contender.times.push_back(Time(contender));
    }
    const Contender& aten = contenders[0];
    const Contender& best = *std::ranges::min_element(contenders, {}, &Contender::time);
    if (best.time() > aten.time() * (1 - kLeastGain))
      return {.aten_us = aten.time(), .best_us = aten.time(), .algorithm = std::nullopt};
    return {.aten_us = aten.time(), .best_us = best.time(), .algorithm = best.algorithm};
  }

  // Microseconds of a product: the median. As in a step, a memory-bound kernel runs before each, so
  // that operands are not cached, and the GPU's power leaves its clock as high.
  double Time(const Contender& contender) const {
    c10::Stream stream = streams_.getStream(device_.device());
    std::vector<std::pair<c10::Event, c10::Event>> events;
    for (size_t i = 0; i < kProducts; ++i) {
      auto event = [&] {
        return c10::Event(device_.device().type(), c10::EventFlag::BACKEND_DEFAULT);
      };
      auto& [before, after] = events.emplace_back(event(), event());
      written_.zero_();
      before.record(stream);
      contender.run();
      after.record(stream);
    }
    events.back().second.synchronize();
    std::vector<double> times;
    for (const auto& [before, after] : events) times.push_back(before.elapsedTime(after) * 1000);
    std::ranges::nth_element(times, times.begin() + kProducts / 2);
    return times[kProducts / 2];
  }

  const BlasLt& library_;
  KernelDevice device_;
  c10::impl::VirtualGuardImpl streams_;
  MatmulChoices choices_;
  at::Tensor written_;
};

}  // namespace

Result<std::unique_ptr<MatmulTuner>> MatmulTuner::Open(c10::Device device) {
  HEDDLE_TRY(const CudaDriver* driver, CudaDriver::Open());
  HEDDLE_TRY(const Nvrtc* nvrtc, Nvrtc::Open());
  HEDDLE_TRY(const BlasLt* library, BlasLt::Open());
  HEDDLE_TRY(std::string architecture, driver->Architecture(device.index()));
  try {
    return std::unique_ptr<MatmulTuner>(std::make_unique<CudaMatmulTuner>(
        *driver, *nvrtc, *library, std::move(architecture), device));
  } catch (const std::exception& error) {
    return Error(Diag::kEnvironment, "{}", AtenErrorMessage(error));
  }
}

}  // namespace heddle::run
