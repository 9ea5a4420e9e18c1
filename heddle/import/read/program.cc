#include "heddle/import/read/program.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "heddle/core/base/scanner.h"

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

WordId ForeignProgram::ScopeWord(std::string_view path) {
  if (path.empty() || path[0] == '.' || path.ends_with('.') ||
      path.find("..") != std::string_view::npos)
    return WordId();
  auto good = [](char c) {
    return (kCharClasses[static_cast<unsigned char>(c)] & CharClass::kScope) != 0;
  };
  if (std::ranges::all_of(path, good)) return Word(path);
  std::string clean(path);
  std::ranges::replace_if(clean, std::not_fn(good), '_');
  return Word(clean);
}

void ForeignProgram::AssignResults(std::span<const uint32_t> calls_of_results) {
  std::vector<uint32_t> order(results.size());
  std::iota(order.begin(), order.end(), 0);
  // In most files, results directly follow their call.
  auto call_of = [&](uint32_t result) { return calls_of_results[result]; };
  if (!std::ranges::is_sorted(order, {}, call_of)) {
    std::ranges::stable_sort(order, {}, call_of);
    std::vector<ForeignResult> unordered = results;
    for (size_t i = 0; i < order.size(); ++i) results[i] = unordered[order[i]];
  }
  for (size_t i = 0; i < order.size(); ++i) {
    ForeignCall& call = calls[call_of(order[i])];
    if (call.result_count++ == 0) call.first_result = static_cast<uint32_t>(i);
  }
}

}  // namespace heddle
