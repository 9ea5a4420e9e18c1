// Added tokens: texts that are found before the model sees the rest, such as `<|endoftext|>`.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::run {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  // Only where no word character is next to it.
  bool single_word = false;
  // Takes the whitespace before or after it, too.
  bool lstrip = false;
  bool rstrip = false;
  // Found in the normalized text instead of the original.
  bool normalized = false;
  // Left out of decoded text.
  bool special = false;
};

// A part of a text: a token, or text between tokens.
struct TextPart {
  size_t begin = 0;
  size_t end = 0;
  // -1 for text.
  int32_t token = -1;
};

// Finds the leftmost tokens, and among those the longest.
class AddedTokenSet {
 public:
  // `contents[i]` is the text to look for `tokens[i]`.
  void Add(const AddedToken& token, std::string content);
  // Call after the last Add. Of equal contents, the first counts.
  void Finish();

  bool empty() const { return entries_.empty(); }
  // Replaces `parts` by the parts of `text`, in order and without empty ones.
  void Split(std::string_view text, std::vector<TextPart>& parts) const;

 private:
  struct Entry {
    std::string content;
    AddedToken token;
  };
  // The entry of the longest token that begins at `at`; null if there is none.
  const Entry* LongestAt(std::string_view text, size_t at) const;

  // Sorted by content.
  std::vector<Entry> entries_;
  std::array<bool, 256> begins_ = {};
};

}  // namespace heddle::run
