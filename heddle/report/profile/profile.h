// A measured profile of training steps next to their simulation.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/price/trace/trace_file.h"

namespace heddle {

// The simulated step in a folder of traces.
inline constexpr std::string_view kSimulatedTrace = "simulated.json";

// The work of one class in a step, of all lanes. Means over the ranks.
struct ClassTimes {
  std::string name;
  double launches = 0;
  Nanos measured;
  // Unset without a simulation.
  std::optional<Nanos> simulated = {};
};

struct Profile {
  // One per rank.
  std::vector<price::Trace> ranks;
  std::vector<price::TracedSteps> steps;
  std::optional<price::Trace> simulated = {};
  // Traces of the folder that are of earlier steps than `ranks`.
  std::vector<std::string> left_out = {};
  // The largest time first.
  std::vector<ClassTimes> classes;

  // The step of the slowest rank.
  Nanos step() const;
  std::optional<Nanos> simulated_step() const;
  // The peak of the rank with the largest.
  std::optional<Bytes> peak_memory() const;
};

// `path`: a trace, or a folder of traces that `heddle train --profile` wrote, which must have the
// traces of all ranks of one run. `simulated`: a trace
// of `heddle sim --trace`; empty: `simulated.json` of the folder, if it exists.
Result<Profile> LoadProfile(const std::string& path, const std::string& simulated);

std::string FormatProfile(const Profile& profile);
nlohmann::ordered_json ToJson(const Profile& profile);
// One self-contained page: the last step of each rank above the simulated one.
std::string FormatProfilePage(const Profile& profile);

}  // namespace heddle
