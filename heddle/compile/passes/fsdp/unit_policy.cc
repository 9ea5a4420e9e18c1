#include "heddle/compile/passes/fsdp/unit_policy.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/ranges.h>

#include "heddle/compile/plan/patterns.h"
#include "heddle/core/base/text.h"

namespace heddle::compile {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"default", "always", "never"};

Result<Reshard> ParseReshard(std::string_view name) {
  auto at = std::ranges::find(kNames, name);
  if (at != kNames.end()) return Reshard{static_cast<Reshard::Kind>(at - kNames.begin())};
  int64_t ranks = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), ranks);
  if (error == std::errc() && end == name.data() + name.size()) {
    if (ranks > 1) return Reshard{Reshard::Kind::kGroup, ranks};
    return Error(Diag::kPassOption,
                 "{} ranks cannot gather from each other; use `never` to keep weights", ranks);
  }
  return Error(Diag::kPassOption, "`{}` is not a policy; choose one of {}, or a number of ranks{}",
               name, fmt::join(kNames, ", "), NearestHint(name, kNames));
}

}  // namespace

Result<UnitPolicy> UnitPolicy::Parse(std::string_view text) {
  UnitPolicy policy;
  bool first = true;
  for (std::string_view part : Split(text, ',')) {
    part = Trim(part);
    size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      if (!first)
        return Error(
            Diag::kPassOption,
            "`{}` applies to all units and must come first; for some units, write `layers.*={}`",
            part, part);
      HEDDLE_TRY(policy.all_, ParseReshard(part));
    } else {
      HEDDLE_TRY(Reshard reshard, ParseReshard(Trim(part.substr(equals + 1))));
      policy.rules_.push_back({std::string(Trim(part.substr(0, equals))), reshard});
    }
    first = false;
  }
  return policy;
}

Status UnitPolicy::CheckUnits(const std::vector<std::string_view>& units) const {
  for (const Rule& rule : rules_) {
    bool known = std::ranges::any_of(
        units, [&](std::string_view unit) { return MatchesPattern(rule.pattern, unit); });
    if (!known)
      return Error(Diag::kPassOption, "no unit matches `{}`; the units are {}", rule.pattern,
                   units.empty() ? "none" : fmt::format("{}", fmt::join(units, ", ")));
  }
  return Done{};
}

Reshard UnitPolicy::of(std::string_view unit) const {
  Reshard found = all_;
  for (const Rule& rule : rules_) {
    if (MatchesPattern(rule.pattern, unit)) found = rule.reshard;
  }
  return found;
}

}  // namespace heddle::compile
