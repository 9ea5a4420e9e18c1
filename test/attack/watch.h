// Runs work in a child process that may crash, hang or use up memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace heddle {

// Limits between two reports.
struct Limits {
  double cpu_seconds = 5;
  // Wall time, idle or not.
  double seconds = 60;
  int64_t bytes = int64_t{1} << 30;
};

// Sends a line to the parent, and waits until it was received.
using Reporter = std::function<void(std::string_view line)>;

// Runs `work` in a child in `directory`, and calls `hear` for every line that it reports. Returns
// how the child died, in one line; empty if it did not.
std::string Watch(const std::string& directory, const Limits& limits,
                  const std::function<void(const Reporter&)>& work,
                  const std::function<void(std::string_view)>& hear);

}  // namespace heddle
