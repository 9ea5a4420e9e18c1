#include "heddle/run/train/step_profile.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>

#include <ATen/record_function.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/profiler_kineto.h>

// kineto_shim.h declares it, but includes headers that the package of PyTorch lacks.
namespace torch::autograd::profiler {
TORCH_API void addMetadataJson(const std::string& key, const std::string& value);
}

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

// The profiler does not report a full disk.
bool EndsLikeJson(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(-1, std::ios::end);
  return file.get() == '}';
}

}  // namespace

StepProfile::StepProfile(ProfiledSteps steps, std::string folder, c10::Device device)
    : steps_(steps), folder_(std::move(folder)), device_(device) {}
StepProfile::~StepProfile() = default;

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
  if (running_) Mark(step + 1);
  if (running_ || !path_.empty() || last || step + 1 != steps_.first) return Done{};
  WaitFor(device_);
  profiler::ProfilerConfig config(profiler::ProfilerState::KINETO, /*report_input_shapes=*/false,
                                  /*profile_memory=*/true);
  std::set<profiler::ActivityType> activities = {profiler::ActivityType::CPU};
  if (device_.is_cuda()) activities.insert(profiler::ActivityType::CUDA);
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
  running_ = true;
  Mark(step + 1);
  return Done{};
}

void StepProfile::Mark(int64_t step) {
  if (!device_.is_cpu()) return;
  mark_.reset();
  mark_ = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
  if (mark_->isActive()) mark_->before(fmt::format("ProfilerStep#{}", step));
}

Status StepProfile::Write(int64_t step) {
  WaitFor(device_);
  mark_.reset();
  running_ = false;
  // As PyTorch's profiler writes it.
  torch::autograd::profiler::addMetadataJson(
      "distributedInfo",
      fmt::format(R"({{"rank": {}, "world_size": {}}})", rank_.rank, rank_.world_size));
  torch::autograd::profiler::addMetadataJson(
      "heddle",
      fmt::format(R"({{"run": "{}", "first_step": {}, "last_step": {}, "held_bytes": {}}})",
                  rank_.run, steps_.first, step, rank_.held.value));
  auto trace = torch::autograd::profiler::disableProfiler();
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  std::string path =
      fmt::format("{}/steps_{}-{}_rank_{}.json", folder_, steps_.first, step, rank_.rank);
  std::string partial = path + ".partial";
  trace->save(partial);
  if (!EndsLikeJson(partial))
    return Error(Diag::kEnvironment, "cannot write the profile `{}`", path);
  std::filesystem::rename(partial, path, error);
  if (error) return Error(Diag::kEnvironment, "cannot write the profile `{}`", path);
  path_ = std::move(path);
  return Done{};
}

}  // namespace heddle::run
