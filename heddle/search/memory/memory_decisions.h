// What becomes of values between forward and backward, by module and op: kept, computed again, or moved to the host.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/search/memory/choice.h"

namespace heddle::search {

class Trials;

struct DecisionLine {
  enum class What : uint8_t { kKept, kRecomputed, kOffloaded };
  What what = What::kKept;
  // Blocks are one: `layers.*.attention`.
  std::string module;
  std::string op;
  int64_t count = 0;
  // Of what is kept or moved; of what is computed again, what would be kept otherwise.
  Bytes bytes;
  // That it takes: recomputation on its stream, copies out and back on the copy engine.
  Nanos time;
};
std::string_view Name(DecisionLine::What what);

// What is kept, then what is computed again, then what is moved; the most bytes first.
Result<std::vector<DecisionLine>> ListDecisions(const Trials& trials, const Marks& marks);

std::string FormatDecisions(const std::vector<DecisionLine>& lines);
nlohmann::ordered_json ToJson(const std::vector<DecisionLine>& lines);

}  // namespace heddle::search
