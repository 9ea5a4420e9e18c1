#include "heddle/run/tokenizer/pre_tokenizer.h"

namespace heddle::run {
namespace {

void ReplaceSpaces(std::string_view text, std::string_view replacement, std::string& out) {
  for (char c : text) {
    if (c == ' ') {
      out += replacement;
    } else {
      out += c;
    }
  }
}

}  // namespace

Status WordEncoder::RunSpans(size_t step, std::string_view text, bool at_start, MatchMemory& memory,
                             std::vector<int32_t>& out) {
  for (const Span& span : scratch_[step].spans) {
    HEDDLE_RETURN_IF_ERROR(Run(step + 1, text.substr(span.begin, span.end - span.begin),
                               at_start && span.begin == 0, memory, out));
  }
  return Done{};
}

Status WordEncoder::Run(size_t step, std::string_view text, bool at_start, MatchMemory& memory,
                        std::vector<int32_t>& out) {
  if (text.empty()) return Done{};
  if (step == steps_.size()) return model_.Encode(text, out);
  Scratch& scratch = scratch_[step];
  if (const auto* split = std::get_if<SplitStep>(&steps_[step])) {
    HEDDLE_RETURN_IF_ERROR(split->pattern.Find(text, memory, scratch.spans));
    if (split->invert) {
      for (Span& span : scratch.spans) span.match = !span.match;
    }
    Divide(split->behavior, scratch.spans);
    return RunSpans(step, text, at_start, memory, out);
  }
  const auto* metaspace = std::get_if<MetaspaceStep>(&steps_[step]);
  if (metaspace == nullptr) {
    if (text[0] == ' ') return Run(step + 1, text, at_start, memory, out);
    scratch.text = " ";
    scratch.text += text;
    return Run(step + 1, scratch.text, at_start, memory, out);
  }
  scratch.text.clear();
  using Prepend = MetaspaceStep::Prepend;
  bool prepends =
      metaspace->prepend == Prepend::kAlways || (metaspace->prepend == Prepend::kFirst && at_start);
  if (prepends && text[0] != ' ' && !text.starts_with(metaspace->replacement))
    scratch.text = metaspace->replacement;
  ReplaceSpaces(text, metaspace->replacement, scratch.text);
  if (!metaspace->split) return Run(step + 1, scratch.text, at_start, memory, out);
  HEDDLE_RETURN_IF_ERROR(
      Pattern::Literal(metaspace->replacement).Find(scratch.text, memory, scratch.spans));
  Divide(SplitBehavior::kMergedWithNext, scratch.spans);
  return RunSpans(step, scratch.text, at_start, memory, out);
}

}  // namespace heddle::run
