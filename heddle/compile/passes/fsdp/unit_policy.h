// The treatment of each unit's gathered weights after forward, as text: `default`,
// `always,norm+output=never`, `8`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"

namespace heddle::compile {

struct Reshard {
  enum class Kind : uint8_t {
    // Freed after forward and gathered again in backward. The unit that backward needs first is
    // kept.
    kDefault,
    kAlways,
    // Kept for backward.
    kNever,
    // Each rank keeps a part, and backward gathers among `ranks` of them.
    kGroup,
  };
  Kind kind = Kind::kDefault;
  int64_t ranks = 0;
};

// A unit without the group of micro-batches that unroll-pipeline appends: `layers.0` of
// `layers.0#1.2`.
inline std::string_view WithoutGroup(std::string_view unit) {
  return unit.substr(0, unit.find('#'));
}

class UnitPolicy {
 public:
  // Parses a policy for all units, followed by `pattern=policy` for some. The last match wins.
  static Result<UnitPolicy> Parse(std::string_view text);

  // Fails if a pattern matches no unit.
  Status CheckUnits(const std::vector<std::string_view>& units) const;
  Reshard of(std::string_view unit) const;

 private:
  struct Rule {
    std::string pattern;
    Reshard reshard;
  };
  Reshard all_;
  std::vector<Rule> rules_;
};

}  // namespace heddle::compile
