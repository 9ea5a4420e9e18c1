#include "heddle/run/verify/step_hashes.h"

#include <cstdlib>
#include <set>

#include <nlohmann/json.hpp>

#include "heddle/core/base/text.h"
#include "heddle/run/verify/compare.h"

namespace heddle::run {
namespace {

constexpr std::string_view kLosses[] = {"loss", "validation_loss"};

// The order in which a step computes them.
int Order(std::string_view name) {
  if (name == kLosses[0]) return 0;
  if (name.ends_with(".grad")) return 1;
  return name == kLosses[1] ? 3 : 2;
}

}  // namespace

Status StepHashes::Add(std::string_view lines) {
  for (std::string_view line : Split(Trim(lines), '\n')) {
    auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    bool fits = json.is_object() && json.contains("rank") && json["rank"].is_number_integer();
    std::string name;
    std::string value;
    for (std::string_view loss : kLosses) {
      if (!fits || !json.contains(loss) || !json[loss].is_string()) continue;
      name = loss;
      // Normalizes numbers: programs may print the same number with other digits.
      value = HexFloat(std::strtod(json[loss].get<std::string>().c_str(), nullptr));
    }
    bool hashed = fits && json.contains("name") && json["name"].is_string() &&
                  json.contains("sha256") && json["sha256"].is_string() && json.contains("shape");
    if (hashed) {
      name = json["name"];
      value = fmt::format("{} {}", json["sha256"].get<std::string>(), json["shape"].dump());
    }
    if (name.empty())
      return Error(Diag::kRunFault, "`{}` is not a line of hashes", line.substr(0, 200));
    values_[{json["rank"].get<int64_t>(), name}] = value;
  }
  return Done{};
}

std::optional<HashDifference> HashDifference::Find(const StepHashes& first,
                                                   const StepHashes& second) {
  std::set<std::pair<int64_t, std::string>> keys;
  for (const auto& [key, value] : first.values_) keys.insert(key);
  for (const auto& [key, value] : second.values_) keys.insert(key);
  std::optional<HashDifference> found;
  size_t differing = 0;
  for (const auto& key : keys) {
    auto text = [&](const StepHashes& hashes) {
      auto at = hashes.values_.find(key);
      return at == hashes.values_.end() ? std::string("missing") : at->second;
    };
    std::string ours = text(first);
    std::string theirs = text(second);
    if (ours == theirs) continue;
    ++differing;
    if (found && Order(found->name) <= Order(key.second)) continue;
    found = HashDifference{key.first, key.second, std::move(ours), std::move(theirs)};
  }
  if (!found) return std::nullopt;
  found->differing = differing;
  found->compared = keys.size();
  return found;
}

}  // namespace heddle::run
