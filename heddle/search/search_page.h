// The plans that a search has found, beside each other on a page that any browser opens.
#pragma once

#include <string>
#include <vector>

#include "heddle/search/plan_search.h"

namespace heddle {

struct SearchRow {
  // `1`, or who published it.
  std::string name;
  std::string plan;
  double tokens_per_second = 0;
  PointOutcome outcome;
  // The plan as text.
  std::string text;
  // Runs it, or writes its job; empty for published plans.
  std::string command = {};
};

// A chart of speed against memory, a table, and the plans. Needs no other file.
std::string FormatSearchPage(const std::string& title, const std::vector<SearchRow>& rows,
                             Bytes budget);

}  // namespace heddle
