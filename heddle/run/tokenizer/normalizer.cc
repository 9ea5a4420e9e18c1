#include "heddle/run/tokenizer/normalizer.h"

namespace heddle::run {
namespace {

// A normalizer may replace each letter by a long text. More than this is an attack.
constexpr size_t kMostGrowth = 64;
constexpr size_t kFreeGrowth = 1 << 20;

// Writes the result of a step to `out.next`.
struct NormalStepRunner {
  NormalText& out;
  MatchMemory& memory;
  size_t most;

  Status operator()(NormalForm form) const {
    AppendNormalized(form, out.text, out.next);
    return Done{};
  }

  Status operator()(const ReplaceStep& step) const {
    HEDDLE_RETURN_IF_ERROR(step.pattern.Find(out.text, memory, out.spans));
    for (const Span& span : out.spans) {
      if (span.match) {
        out.next += step.content;
      } else {
        out.next += std::string_view(out.text).substr(span.begin, span.end - span.begin);
      }
      if (out.next.size() > most) break;
    }
    if (step.content.empty() && !out.spans.empty() && out.spans[0].match && out.spans[0].end > 0)
      out.at_start = false;
    return Done{};
  }

  Status operator()(const PrependStep& step) const {
    if (!out.text.empty()) out.next = step.content;
    out.next += out.text;
    return Done{};
  }

  Status operator()(const StripStep& step) const {
    std::string_view text = out.text;
    if (step.right) text = text.substr(0, BeginOfTrailingSpace(text));
    size_t begin = step.left ? EndOfLeadingSpace(text) : 0;
    if (begin > 0) out.at_start = false;
    out.next = text.substr(begin);
    return Done{};
  }

  Status operator()(LowercaseStep) const {
    AppendLowercase(out.text, out.next);
    return Done{};
  }
};

}  // namespace

Status Normalize(const std::vector<NormalStep>& steps, MatchMemory& memory, NormalText& out) {
  size_t size = out.text.size();
  size_t most = size * kMostGrowth + kFreeGrowth;
  for (const NormalStep& step : steps) {
    out.next.clear();
    HEDDLE_RETURN_IF_ERROR(std::visit(NormalStepRunner{out, memory, most}, step));
    out.text.swap(out.next);
    if (out.text.size() > most)
      return Error(Diag::kTokenizer,
                   "the normalizer turns a text of {} bytes into more than {} bytes", size, most);
  }
  return Done{};
}

}  // namespace heddle::run
