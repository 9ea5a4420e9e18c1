#include "heddle/cli/graph/pass_costs.h"

#include <span>

#include <nlohmann/json.hpp>

#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

std::span<const compile::PassRecord> AfterLowering(const compile::CompileReport& report) {
  return std::span(report.passes).subspan(report.first_after_lowering);
}

}  // namespace

std::string FormatCosts(const compile::CompileReport& report) {
  TextTable table({"pass", "launches>", "before>", "peak>", "before>"});
  bool any = false;
  for (const compile::PassRecord& record : AfterLowering(report)) {
    if (record.changed == Changed::kNo) continue;
    any = true;
    table.AddRow({record.pass, WithCommas(record.after.launches),
                  WithCommas(record.before.launches), Format(record.after.peak),
                  Format(record.before.peak)});
  }
  return any ? "\n" + table.Format() : "";
}

nlohmann::ordered_json CostsToJson(const compile::CompileReport& report) {
  auto list = nlohmann::ordered_json::array();
  for (const compile::PassRecord& record : AfterLowering(report)) {
    auto cost = [](const compile::ScheduleCost& c) -> nlohmann::ordered_json {
      return {{"launches", c.launches}, {"peak_bytes", c.peak.value}};
    };
    list.push_back({{"pass", record.pass},
                    {"changed", record.changed == Changed::kYes},
                    {"before", cost(record.before)},
                    {"after", cost(record.after)}});
  }
  return list;
}

}  // namespace heddle
