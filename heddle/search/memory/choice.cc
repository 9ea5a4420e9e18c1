#include "heddle/search/memory/choice.h"

#include <nlohmann/json.hpp>

#include "heddle/core/base/table.h"

namespace heddle::search {

Result<Bytes> ParseBudget(std::string_view text) {
  HEDDLE_TRY(Bytes budget, ParseBytes(text));
  if (budget <= Bytes{}) return Error(Diag::kUsage, "a budget of {} holds nothing", Format(budget));
  if (text.back() >= '0' && text.back() <= '9')
    return Error(Diag::kUsage, "a budget of `{}` has no unit, as in {}GiB", text, text);
  return budget;
}

nlohmann::ordered_json ToJson(const MemoryChoice& choice) {
  auto ms = [](Nanos time) { return static_cast<double>(time.value) / kNanosPerMilli; };
  return {{"policy", choice.policy},
          {"peak_bytes", choice.peak.value},
          {"step_ms", ms(choice.step)},
          {"bound_ms", ms(choice.bound)},
          {"recompute_ms", ms(choice.recompute)},
          {"kept_bytes", choice.kept.value},
          {"recomputed", choice.recomputed},
          {"offloaded_bytes", choice.offloaded.value}};
}

std::string FormatChoices(const std::vector<MemoryChoice>& choices) {
  TextTable table(
      {"policy", "peak>", "step>", "bound>", "recompute>", "nodes>", "kept>", "on the host>"});
  for (const MemoryChoice& choice : choices) {
    table.AddRow({choice.policy, Format(choice.peak), Format(choice.step),
                  choice.bound > Nanos{} ? Format(choice.bound) : "-", Format(choice.recompute),
                  fmt::format("{}", choice.recomputed), Format(choice.kept),
                  Format(choice.offloaded)});
  }
  return table.Format();
}

}  // namespace heddle::search
