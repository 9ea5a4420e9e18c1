#include "heddle/import/read/call_reader.h"

namespace heddle {

bool CallReader::TakeCalleeOfStem(std::string_view name) {
  size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  stem_ = stems_.Intern(name.substr(0, digits));
  if (stem_.index() == stem_callees_.size()) stem_callees_.emplace_back();
  return TakeCallee(stem_callees_[stem_.index()]);
}

void CallReader::SetCallee(std::string_view word) {
  callee_ = callees_.Intern(word);
  if (callee_.index() < targets_.size()) return;
  if (word.starts_with("torch.ops.")) word.remove_prefix(10);
  if (word.starts_with("_operator.")) word.remove_prefix(1);
  targets_.push_back(program_.targets.Intern(word));
  tails_.emplace_back();
}

}  // namespace heddle
