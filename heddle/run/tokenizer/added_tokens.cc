#include "heddle/run/tokenizer/added_tokens.h"

#include <algorithm>

#include "heddle/run/tokenizer/unicode.h"

namespace heddle::run {
namespace {

bool IsWholeWord(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && IsWordCharacter(LastCharacter(text.substr(0, begin)))) return false;
  size_t next = end;
  return end == text.size() || !IsWordCharacter(NextCharacter(text, next));
}

}  // namespace

void AddedTokenSet::Add(const AddedToken& token, std::string content) {
  if (content.empty()) return;
  begins_[static_cast<unsigned char>(content[0])] = true;
  entries_.push_back({std::move(content), token});
}

void AddedTokenSet::Finish() {
  std::ranges::stable_sort(entries_, {}, &Entry::content);
  auto rest = std::ranges::unique(entries_, {}, &Entry::content);
  entries_.erase(rest.begin(), rest.end());
}

const AddedTokenSet::Entry* AddedTokenSet::LongestAt(std::string_view text, size_t at) const {
  const Entry* longest = nullptr;
  auto low = entries_.begin();
  auto high = entries_.end();
  // The entries from `low` to `high` begin with the `depth` bytes at `at`.
  for (size_t depth = 0;; ++depth) {
    if (low->content.size() == depth) longest = &*low++;
    if (low == high || at + depth == text.size()) return longest;
    auto byte = [depth](const Entry& entry) {
      return static_cast<unsigned char>(entry.content[depth]);
    };
    auto next =
        std::ranges::equal_range(low, high, static_cast<unsigned char>(text[at + depth]), {}, byte);
    if (next.empty()) return longest;
    low = next.begin();
    high = next.end();
  }
}

void AddedTokenSet::Split(std::string_view text, std::vector<TextPart>& parts) const {
  parts.clear();
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !entries_.empty();) {
    const Entry* entry =
        begins_[static_cast<unsigned char>(text[at])] ? LongestAt(text, at) : nullptr;
    if (entry == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + entry->content.size();
    at = end;
    const AddedToken& token = entry->token;
    if (token.single_word && !IsWholeWord(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(BeginOfTrailingSpace(text.substr(0, begin)), done);
    if (token.rstrip) end += EndOfLeadingSpace(text.substr(end));
    if (begin > done) parts.push_back({done, begin});
    parts.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) parts.push_back({done, text.size()});
}

}  // namespace heddle::run
