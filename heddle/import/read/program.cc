#include "heddle/import/read/program.h"

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

void ForeignProgram::SetResults(std::span<const std::pair<uint32_t, ForeignResult>> all) {
  for (const auto& [call, result] : all) ++calls[call].result_count;
  uint32_t first = 0;
  for (ForeignCall& call : calls) {
    call.first_result = first;
    first += std::exchange(call.result_count, 0);
  }
  results.resize(first);
  for (const auto& [number, result] : all) {
    ForeignCall& call = calls[number];
    results[call.first_result + call.result_count++] = result;
  }
}

}  // namespace heddle
