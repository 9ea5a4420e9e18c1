// Byte-pair encoding of words.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/hash.h"
#include "heddle/core/base/result.h"

namespace heddle::run {

// The character that stands for a byte in vocabularies of byte-level BPE, and back: -1 for others.
uint32_t CharacterOfByte(uint8_t byte);
int ByteOfCharacter(uint32_t character);

// A set of texts with numbers.
class TokenTable {
 public:
  // Returns false if the text is already in the table.
  bool Add(std::string_view text, int32_t id);
  // -1 if the text is not in the table.
  int32_t Find(std::string_view text) const;

 private:
  struct Entry {
    size_t begin;
    uint32_t size;
    int32_t id;
  };
  std::string_view TextOf(uint32_t entry) const {
    return std::string_view(chars_).substr(entries_[entry].begin, entries_[entry].size);
  }

  std::string chars_;
  std::vector<Entry> entries_;
  HashIndex index_;
};

// The merge of two tokens; a smaller rank is merged first.
struct BpeMerge {
  uint32_t rank = 0;
  int32_t token = -1;
};

class BpeModel {
 public:
  // How words are divided into the first tokens.
  enum class Units : uint8_t { kCharacters, kBytes };

  Units units = Units::kCharacters;
  // A whole word that is a token needs no merges.
  bool ignore_merges = false;
  // A character that is not a token becomes its bytes, as `<0x0A>`.
  bool byte_fallback = false;
  bool fuse_unknown = false;
  // Whether the file names a token for unknown characters, and its id if it is in the vocabulary.
  bool has_unknown = false;
  int32_t unknown = -1;

  // Texts of tokens as in the file.
  TokenTable vocab;
  // With Units::kBytes: texts of tokens as bytes.
  TokenTable words;
  // Tokens of the bytes, as units or for byte_fallback; -1 if there is none.
  std::array<int32_t, 256> bytes;

  BpeModel() { bytes.fill(-1); }
  // The last merge of a pair counts. Call Reserve first.
  void ReserveMerges(size_t count);
  void AddMerge(int32_t left, int32_t right, BpeMerge merge);
  const BpeMerge* FindMerge(int32_t left, int32_t right) const;

  // The character before which every word can be divided, unless the same character precedes:
  // no token contains it after another character.
  std::string boundary;

 private:
  struct Slot {
    uint64_t pair = kFree;
    BpeMerge merge;
  };
  static constexpr uint64_t kFree = UINT64_MAX;
  size_t SlotOf(uint64_t pair) const;

  std::vector<Slot> slots_;
};

// Encodes words of one thread, and remembers them.
class BpeEncoder {
 public:
  explicit BpeEncoder(const BpeModel& model);

  // Appends the tokens of a word, which is UTF-8. Fails if a character is unknown and the token for
  // unknown characters is not in the vocabulary.
  Status Encode(std::string_view word, std::vector<int32_t>& out);

 private:
  struct Symbol {
    int32_t token;
    // Positions of the neighbours; -1 if there are none. A merged symbol has token -1.
    int32_t previous;
    int32_t next;
  };
  struct Candidate {
    uint32_t rank;
    int32_t at;
    int32_t token;
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  struct CachedWord {
    uint64_t hash;
    // Where the word begins in words_ and its tokens in tokens_.
    uint32_t word;
    uint32_t tokens;
    uint16_t size = 0;
    uint16_t count;
  };

  Status EncodePart(std::string_view word, std::vector<int32_t>& out);
  Status EncodeNew(std::string_view word, std::vector<int32_t>& out);
  // Adds the bytes of a character; false if that is not possible.
  bool AddBytes(std::string_view character);
  Status AddUnknown(std::string_view character);
  void FlushUnknown();
  void AddSymbol(int32_t token);
  void AddCandidate(int32_t at);
  void Merge();
  void Remember(uint64_t hash, size_t slot, std::string_view word, std::span<const int32_t> tokens);

  const BpeModel& model_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
  // Unknown characters precede, and their token has not been added yet.
  bool pending_unknown_ = false;
  // Slots by hash. A word that finds its slot taken replaces the word there.
  std::vector<CachedWord> cache_;
  std::string words_;
  std::vector<int32_t> tokens_;
};

}  // namespace heddle::run
