// Lists values between forward and backward by module and op: kept, recomputed, or moved to the
// host.
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
  // Blocks are merged: `layers.*.attention`.
  std::string module;
  std::string op;
  int64_t count = 0;
  // Bytes kept or moved; for recomputed values, the bytes saved.
  Bytes bytes;
  // Time of recomputation on the compute stream, or of copies out and back on the copy engine.
  Nanos time;
};
std::string_view Name(DecisionLine::What what);

// Returns kept, then recomputed, then moved values, each by decreasing bytes.
Result<std::vector<DecisionLine>> ListDecisions(const Trials& trials, const Marks& marks);

std::string FormatDecisions(const std::vector<DecisionLine>& lines);
nlohmann::ordered_json ToJson(const std::vector<DecisionLine>& lines);

}  // namespace heddle::search
