// Settings of a run that may change when it resumes, with a remark.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace heddle {

// Keys and values of optimizer, schedule and precision. `job` is the TOML of all flags.
std::vector<std::pair<std::string, std::string>> RunSettings(const std::string& job);

}  // namespace heddle
