// StepProfile: a trace of some steps, written by libtorch's profiler in Chrome's format.
//
// It contains the calls of ATen on the host and, on a GPU, the kernels and copies on the device,
// also those of replayed CUDA graphs.
#pragma once

#include <string>
#include <string_view>

#include <c10/core/Device.h>

#include "heddle/core/base/result.h"

namespace heddle::run {

// `count` steps from step `first` on; steps count from 1.
struct ProfiledSteps {
  int64_t first = 0;
  int64_t count = 0;
};
// Parses `START:COUNT`. `COUNT` alone selects steps after warm-up and after CUDA graphs are
// recorded.
Result<ProfiledSteps> ParseProfiledSteps(std::string_view text);

class StepProfile {
 public:
  // Writes the trace into `folder`, to a file named after the steps and the rank.
  StepProfile(ProfiledSteps steps, std::string folder, int64_t rank, c10::Device device)
      : steps_(steps), folder_(std::move(folder)), rank_(rank), device_(device) {}

  // Starts and ends the trace. Call it before the first step, with the number of completed steps,
  // and after every step. `last` ends it in any case.
  Status After(int64_t step, bool last = false);
  // Whether the trace begins or ends after this step. The next step must not have started then.
  bool is_edge(int64_t step) const {
    return step + 1 == steps_.first || step + 1 == steps_.first + steps_.count;
  }
  // Path of the trace; empty until it is written.
  const std::string& path() const { return path_; }

 private:
  Status Write(int64_t step);

  ProfiledSteps steps_;
  std::string folder_;
  int64_t rank_;
  c10::Device device_;
  bool running_ = false;
  std::string path_;
};

}  // namespace heddle::run
