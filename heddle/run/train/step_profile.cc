#include "heddle/run/train/step_profile.h"

#include <charconv>
#include <filesystem>
#include <set>

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/profiler_kineto.h>

namespace heddle::run {
namespace {

namespace profiler = torch::profiler::impl;

// Skips two steps that run as launches, one that is recorded, and two replays.
constexpr int64_t kFirstStep = 6;

bool ParseCount(std::string_view text, int64_t& count) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  return error == std::errc() && end == text.data() + text.size() && count > 0;
}

void WaitFor(c10::Device device) {
  if (!device.is_cpu())
    c10::impl::getDeviceGuardImpl(device.type())->synchronizeDevice(device.index());
}

}  // namespace

Result<ProfiledSteps> ParseProfiledSteps(std::string_view text) {
  ProfiledSteps steps{kFirstStep, 0};
  size_t colon = text.find(':');
  bool ok = colon == std::string_view::npos || ParseCount(text.substr(0, colon), steps.first);
  if (!ok || !ParseCount(text.substr(colon == std::string_view::npos ? 0 : colon + 1), steps.count))
    return Error(Diag::kUsage,
                 "--profile is `{}`; expected COUNT or START:COUNT with positive numbers, as in 3 "
                 "or 10:3",
                 text);
  return steps;
}

Status StepProfile::After(int64_t step, bool last) {
  if (running_ && (last || step + 1 >= steps_.first + steps_.count)) return Write(step);
  if (running_ || !path_.empty() || last || step + 1 != steps_.first) return Done{};
  WaitFor(device_);
  profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  std::set<profiler::ActivityType> activities = {profiler::ActivityType::CPU};
  if (device_.is_cuda()) activities.insert(profiler::ActivityType::CUDA);
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
  running_ = true;
  return Done{};
}

Status StepProfile::Write(int64_t step) {
  WaitFor(device_);
  running_ = false;
  auto trace = torch::autograd::profiler::disableProfiler();
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  std::string path = fmt::format("{}/steps_{}-{}_rank_{}.json", folder_, steps_.first, step, rank_);
  // The profiler does not report a file that it cannot write.
  trace->save(path);
  if (!std::filesystem::exists(path, error))
    return Error(Diag::kEnvironment, "cannot write the profile `{}`", path);
  path_ = std::move(path);
  return Done{};
}

}  // namespace heddle::run
