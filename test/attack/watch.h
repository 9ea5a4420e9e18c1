// Work in a child process that may crash, hang or take all memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace heddle {

// Between one report and the next.
struct Limits {
  double cpu_seconds = 5;
  // Idle or not.
  double seconds = 60;
  int64_t bytes = int64_t{1} << 30;
};

// Says a line to the parent, and waits until it has been heard.
using Reporter = std::function<void(std::string_view line)>;

// Runs `work` in a child in `directory`, and `hear` here for every line that it reports. How the child died, one line; empty if it
// did not.
std::string Watch(const std::string& directory, const Limits& limits,
                  const std::function<void(const Reporter&)>& work,
                  const std::function<void(std::string_view)>& hear);

}  // namespace heddle
