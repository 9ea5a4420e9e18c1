// Reports of training runs: summaries, a comparison of two runs, and a page of their metrics over
// steps and time.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "heddle/report/run/run_log.h"

namespace heddle {

struct TrainingReport {
  RunLog run;
  std::optional<RunLog> against = {};

  // Compares the losses at the last step that both have, and tokens per second. Empty for one run.
  std::string Headline() const;
};

std::string FormatRunReport(const TrainingReport& report);
nlohmann::ordered_json ToJson(const TrainingReport& report);
// One self-contained page.
std::string FormatRunPage(const TrainingReport& report);

}  // namespace heddle
