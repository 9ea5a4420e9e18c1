#include "heddle/import/read/program.h"

#include <algorithm>

namespace heddle {

ForeignValue ForeignProgram::TakeList(ForeignValue::Kind kind, std::vector<ForeignValue>& open,
                                      size_t begin) {
  ForeignValue list;
  list.kind = kind;
  list.range = {static_cast<uint32_t>(values.size()), static_cast<uint32_t>(open.size() - begin)};
  values.insert(values.end(), open.begin() + static_cast<std::ptrdiff_t>(begin), open.end());
  open.resize(begin);
  return list;
}

void ForeignProgram::SetResults(std::vector<NumberedResult> all) {
  // Most files name results right behind their call.
  constexpr auto kCall = &NumberedResult::first;
  if (!std::ranges::is_sorted(all, {}, kCall)) std::ranges::stable_sort(all, {}, kCall);
  results.reserve(all.size());
  for (const auto& [number, result] : all) {
    ForeignCall& call = calls[number];
    if (call.result_count++ == 0) call.first_result = static_cast<uint32_t>(results.size());
    results.push_back(result);
  }
}

}  // namespace heddle
