#include "heddle/core/ir/check/parse_module.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "heddle/core/ir/check/check_module.h"

namespace heddle {

Result<Module> ParseModule(std::string text, std::string file, const OpTable& ops) {
  Parsed parsed = ParseText(std::move(text), std::move(file), ops);
  Diagnostics all = std::move(parsed.diagnostics);
  Diagnostics verified = VerifyParsed(parsed);
  all.insert(all.end(), std::make_move_iterator(verified.begin()),
             std::make_move_iterator(verified.end()));
  if (all.empty()) return std::move(parsed.module);
  // The diagnostic without a position, which counts the omitted ones, sorts last.
  auto place = [](const Diagnostic& d) { return std::tuple(d.line == 0, d.line, d.column); };
  std::ranges::stable_sort(all, {}, place);
  return Failure{std::move(all)};
}

}  // namespace heddle
