#include "heddle/run/tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "heddle/core/base/check.h"

// 10.40 added properties such as White_Space.
static_assert(PCRE2_MAJOR == 10 && PCRE2_MINOR >= 40, "PCRE2 10.40 or newer is needed");

namespace heddle::run {
namespace {

constexpr size_t kLongestExpression = 1 << 16;
// Steps of backtracking from one position of a text, and memory for them in KiB.
constexpr uint32_t kMostSteps = 20'000'000;
constexpr uint32_t kMostHeap = 64 * 1024;
constexpr size_t kJitStack = 8 << 20;

std::string MessageOf(int code) {
  PCRE2_UCHAR buffer[256];
  int length = pcre2_get_error_message(code, buffer, sizeof(buffer));
  return length < 0 ? fmt::format("error {}", code) : reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct MatchMemory::State {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStack, nullptr);

  State() {
    HEDDLE_CHECK(data != nullptr && context != nullptr, "PCRE2 has no memory");
    pcre2_set_match_limit(context, kMostSteps);
    pcre2_set_heap_limit(context, kMostHeap);
    // Null where PCRE2 has no compiler for the machine.
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    if (stack != nullptr) pcre2_jit_stack_free(stack);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

MatchMemory::MatchMemory() : state_(std::make_unique<State>()) {}
MatchMemory::~MatchMemory() = default;

Pattern Pattern::Literal(std::string text) {
  Pattern pattern;
  pattern.source_ = std::move(text);
  return pattern;
}

Result<Pattern> Pattern::Regex(std::string_view expression) {
  if (expression.size() > kLongestExpression)
    return Error(Diag::kTokenizer, "the regular expression has {} bytes, expected at most {}",
                 expression.size(), kLongestExpression);
  Pattern pattern;
  pattern.source_ = expression;
  HEDDLE_TRY(std::string translated, TranslateRegex(expression));
  std::shared_ptr<pcre2_compile_context> context(pcre2_compile_context_create(nullptr),
                                                 pcre2_compile_context_free);
  HEDDLE_CHECK(context != nullptr, "PCRE2 has no memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int code = 0;
  PCRE2_SIZE offset = 0;
  // `^` and `$` are ends of lines in Oniguruma.
  pcre2_code* compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code,
                    &offset, context.get());
  if (compiled == nullptr)
    return Error(Diag::kTokenizer, "the regular expression is wrong: {}", MessageOf(code));
  pattern.has_jit_ = pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE) == 0;
  pattern.code_ = std::shared_ptr<const void>(compiled, [](const void* p) {
    pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p)));
  });
  return pattern;
}

Status Pattern::Find(std::string_view text, MatchMemory& memory, std::vector<Span>& spans) const {
  spans.clear();
  if (text.empty()) {
    spans.push_back({0, 0, false});
    return Done{};
  }
  if (code_ != nullptr) return FindRegex(text, memory, spans);
  size_t end = 0;
  for (size_t at = text.find(source_); at != std::string_view::npos; at = text.find(source_, end)) {
    if (at > end) spans.push_back({end, at, false});
    end = at + source_.size();
    spans.push_back({at, end, true});
  }
  if (end < text.size()) spans.push_back({end, text.size(), false});
  return Done{};
}

Status Pattern::FindRegex(std::string_view text, MatchMemory& memory,
                          std::vector<Span>& spans) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  MatchMemory::State& state = *memory.state_;
  const PCRE2_SIZE* match = pcre2_get_ovector_pointer(state.data);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t end = 0;
  bool matched = false;
  for (size_t at = 0; at <= text.size();) {
    int found = has_jit_
                    ? pcre2_jit_match(code, subject, text.size(), at, 0, state.data, state.context)
                    : pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, state.data,
                                  state.context);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      return Error(Diag::kTokenizer,
                   "the regular expression `{}` fails at byte {} of a text of {}: {}", source_, at,
                   text.size(), MessageOf(found));
    // An empty match right after another match does not count.
    if (match[1] == match[0] && matched && match[1] == end) {
      ++at;
      while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
      continue;
    }
    if (match[0] > end) spans.push_back({end, match[0], false});
    spans.push_back({match[0], match[1], true});
    at = end = match[1];
    matched = true;
  }
  if (end < text.size()) spans.push_back({end, text.size(), false});
  return Done{};
}

void Divide(SplitBehavior behavior, std::vector<Span>& spans) {
  if (behavior == SplitBehavior::kIsolated) return;
  size_t kept = 0;
  if (behavior == SplitBehavior::kMergedWithNext) {
    // From the back, so that the result is at the end of the list.
    size_t first = spans.size();
    bool previous = false;
    for (size_t i = spans.size(); i-- > 0;) {
      Span span = spans[i];
      if (span.match && !previous && first < spans.size()) {
        spans[first].begin = span.begin;
      } else {
        spans[--first] = span;
      }
      previous = span.match;
    }
    spans.erase(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(first));
    return;
  }
  bool previous = false;
  for (Span span : spans) {
    bool joins =
        behavior == SplitBehavior::kContiguous ? span.match == previous : span.match && !previous;
    if (behavior == SplitBehavior::kRemoved) {
      if (!span.match) spans[kept++] = span;
    } else if (joins && kept > 0) {
      spans[kept - 1].end = span.end;
    } else {
      spans[kept++] = span;
    }
    previous = span.match;
  }
  spans.resize(kept);
}

}  // namespace heddle::run
