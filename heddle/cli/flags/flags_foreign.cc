// Flags and keys of TorchTitan that Heddle refuses or ignores.
#include "heddle/cli/flags/flags.h"
#include "heddle/cli/flags/foreign_keys.h"
#include "heddle/core/base/text.h"

namespace heddle {

Status Flags::RejectForeign(const ForeignKey& foreign, std::string_view key,
                            const std::string& value, const std::string& file) {
  if (foreign.IsOff(value)) return Done{};
  if (foreign.refused())
    return Error(Diag::kUnknownFlag, "`{}` is `{}`; {}", key, value, foreign.text);
  ignored_.push_back({file, std::string(key), foreign.text});
  return Done{};
}

Status Flags::ReadForeign(const ForeignKey& foreign, std::span<const std::string> args,
                          size_t& at) {
  const std::string& arg = args[at];
  size_t equals = arg.find('=');
  std::string name = arg.substr(0, equals);
  std::string value = equals == std::string::npos ? "true" : arg.substr(equals + 1);
  bool follows = equals == std::string::npos && !foreign.is_switch() && at + 1 < args.size() &&
                 !args[at + 1].starts_with("--");
  if (follows) value = args[++at];
  return RejectForeign(foreign, name, value, "");
}

std::vector<std::string> Flags::Notes() const {
  // By file and reason: the keys.
  std::vector<std::pair<std::pair<std::string_view, std::string_view>, std::string>> grouped;
  std::vector<size_t> counts;
  for (const IgnoredKey& ignored : ignored_) {
    std::pair<std::string_view, std::string_view> place(ignored.file, ignored.reason);
    size_t i = 0;
    while (i < grouped.size() && grouped[i].first != place) ++i;
    if (i == grouped.size()) {
      grouped.push_back({place, ""});
      counts.push_back(0);
    }
    grouped[i].second += fmt::format("{}`{}`", counts[i]++ > 0 ? ", " : "", ignored.key);
  }
  std::vector<std::string> out = hints_;
  for (size_t i = 0; i < grouped.size(); ++i) {
    const auto& [file, reason] = grouped[i].first;
    out.push_back(fmt::format("{}{}{} {} no effect: {}", file, file.empty() ? "" : ": ",
                              grouped[i].second, counts[i] == 1 ? "has" : "have", reason));
  }
  return out;
}

}  // namespace heddle
