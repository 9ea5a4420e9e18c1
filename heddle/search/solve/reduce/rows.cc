// Simplifies rows when amounts are decided.
#include <algorithm>
#include <cmath>

#include "heddle/search/solve/reduce/reduce.h"

namespace heddle::search {
namespace {

struct RowRange {
  double least = 0;
  double most = 0;
};

// Removes constant amounts. Returns the ranges of the remaining sums.
std::vector<RowRange> TakeConstants(Core& core) {
  std::vector<RowRange> ranges(core.rows.size());
  for (CoreVariable& variable : core.variables) {
    size_t before = variable.terms.size();
    std::erase_if(variable.terms, [&](const CoreTerm& term) {
      auto [least, most] = std::ranges::minmax(term.amount);
      CoreRow& row = core.rows[term.row];
      if (least == most) {
        row.lo -= least;
        row.hi -= least;
        return true;
      }
      ranges[term.row].least += least;
      ranges[term.row].most += most;
      return false;
    });
    if (variable.terms.size() != before) variable.unchecked = true;
  }
  return ranges;
}

}  // namespace

bool SimplifyRows(Core& core) {
  std::vector<RowRange> ranges = TakeConstants(core);
  std::vector<bool> looser(core.rows.size());
  std::vector<bool> idle(core.rows.size());
  for (size_t r = 0; r < core.rows.size(); ++r) {
    CoreRow& row = core.rows[r];
    auto [least, most] = ranges[r];
    if (least > row.hi || most < row.lo) return false;
    bool lo_idle = least >= row.lo;
    bool hi_idle = most <= row.hi;
    looser[r] = (lo_idle && std::isfinite(row.lo)) || (hi_idle && std::isfinite(row.hi));
    idle[r] = lo_idle && hi_idle;
    if (lo_idle) row.lo = -HUGE_VAL;
    if (hi_idle) row.hi = HUGE_VAL;
  }
  for (CoreVariable& variable : core.variables) {
    for (const CoreTerm& term : variable.terms) {
      if (looser[term.row]) variable.unchecked = true;
    }
    std::erase_if(variable.terms, [&](const CoreTerm& term) { return idle[term.row]; });
  }
  return true;
}

}  // namespace heddle::search
