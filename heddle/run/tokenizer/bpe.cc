#include "heddle/run/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "heddle/run/tokenizer/unicode.h"

namespace heddle::run {
namespace {

// Words that are remembered. A cache of this size stays in the second-level cache of a core.
constexpr size_t kCachedWords = size_t{1} << 16;
constexpr size_t kLongestCached = 128;
// When the pools of the cache are larger, it starts again.
constexpr size_t kMostCachedBytes = size_t{8} << 20;

bool StandsForItself(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

uint64_t PairOf(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

uint32_t CharacterOfByte(uint8_t byte) {
  if (StandsForItself(byte)) return byte;
  // The others follow from U+0100 on, in order: 0 to 32, 127 to 160, and 173.
  if (byte <= ' ') return 0x100u + byte;
  return byte == 0xAD ? 0x143u : 0x100u + 33u + (byte - 0x7Fu);
}

int ByteOfCharacter(uint32_t character) {
  if (character < 0x100) return StandsForItself(character) ? static_cast<int>(character) : -1;
  if (character <= 0x120) return static_cast<int>(character - 0x100);
  if (character <= 0x142) return static_cast<int>(character - 0x121 + 0x7F);
  return character == 0x143 ? 0xAD : -1;
}

bool TokenTable::Add(std::string_view text, int32_t id) {
  if (Find(text) >= 0) return false;
  index_.Insert(Hash64(text), static_cast<uint32_t>(entries_.size()));
  entries_.push_back({chars_.size(), static_cast<uint32_t>(text.size()), id});
  chars_ += text;
  return true;
}

int32_t TokenTable::Find(std::string_view text) const {
  uint32_t found = index_.Find(Hash64(text), [&](uint32_t entry) { return TextOf(entry) == text; });
  return found == HashIndex::kNone ? -1 : entries_[found].id;
}

void BpeModel::ReserveMerges(size_t count) { slots_.resize(std::bit_ceil(2 * count + 1)); }

size_t BpeModel::SlotOf(uint64_t pair) const {
  size_t mask = slots_.size() - 1;
  size_t slot = (pair * 0x9E3779B97F4A7C15u >> 32) & mask;
  while (slots_[slot].pair != pair && slots_[slot].pair != kFree) slot = (slot + 1) & mask;
  return slot;
}

void BpeModel::AddMerge(int32_t left, int32_t right, BpeMerge merge) {
  uint64_t pair = PairOf(left, right);
  slots_[SlotOf(pair)] = {pair, merge};
}

const BpeMerge* BpeModel::FindMerge(int32_t left, int32_t right) const {
  const Slot& slot = slots_[SlotOf(PairOf(left, right))];
  return slot.pair == kFree ? nullptr : &slot.merge;
}

BpeEncoder::BpeEncoder(const BpeModel& model) : model_(model), cache_(kCachedWords) {}

Status BpeEncoder::Encode(std::string_view word, std::vector<int32_t>& out) {
  const std::string& boundary = model_.boundary;
  if (boundary.empty()) return EncodePart(word, out);
  if (model_.ignore_merges) {
    if (int32_t whole = model_.vocab.Find(word); whole >= 0) {
      out.push_back(whole);
      return Done{};
    }
  }
  size_t begin = 0;
  size_t after = word.starts_with(boundary) ? boundary.size() : 0;
  while (true) {
    size_t next = word.find(boundary, after);
    if (next == std::string_view::npos) break;
    // Several boundaries in a row belong together.
    if (next > after) {
      HEDDLE_RETURN_IF_ERROR(EncodePart(word.substr(begin, next - begin), out));
      begin = next;
    }
    after = next + boundary.size();
  }
  return EncodePart(word.substr(begin), out);
}

Status BpeEncoder::EncodePart(std::string_view word, std::vector<int32_t>& out) {
  if (word.empty()) return Done{};
  if (word.size() > kLongestCached) return EncodeNew(word, out);
  uint64_t hash = Hash64(word);
  size_t slot = hash & (kCachedWords - 1);
  const CachedWord& cached = cache_[slot];
  if (cached.size == word.size() && cached.hash == hash &&
      std::memcmp(words_.data() + cached.word, word.data(), word.size()) == 0) {
    const int32_t* tokens = tokens_.data() + cached.tokens;
    out.insert(out.end(), tokens, tokens + cached.count);
    return Done{};
  }
  size_t before = out.size();
  HEDDLE_RETURN_IF_ERROR(EncodeNew(word, out));
  Remember(hash, slot, word, std::span<const int32_t>(out).subspan(before));
  return Done{};
}

void BpeEncoder::Remember(uint64_t hash, size_t slot, std::string_view word,
                          std::span<const int32_t> tokens) {
  if (words_.size() + 4 * tokens_.size() > kMostCachedBytes) {
    words_.clear();
    tokens_.clear();
    std::ranges::fill(cache_, CachedWord{});
  }
  cache_[slot] = {hash, static_cast<uint32_t>(words_.size()), static_cast<uint32_t>(tokens_.size()),
                  static_cast<uint16_t>(word.size()), static_cast<uint16_t>(tokens.size())};
  words_ += word;
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

Status BpeEncoder::EncodeNew(std::string_view word, std::vector<int32_t>& out) {
  bool bytes = model_.units == BpeModel::Units::kBytes;
  if (model_.ignore_merges && (bytes || model_.boundary.empty())) {
    if (int32_t whole = (bytes ? model_.words : model_.vocab).Find(word); whole >= 0) {
      out.push_back(whole);
      return Done{};
    }
  }
  if (word.size() > INT32_MAX)
    return Error(Diag::kTokenizer, "a word has {} bytes, expected at most {}", word.size(),
                 INT32_MAX);
  symbols_.clear();
  pending_unknown_ = false;
  for (size_t at = 0; at < word.size();) {
    size_t begin = at;
    int32_t token = -1;
    if (bytes) {
      token = model_.bytes[static_cast<unsigned char>(word[at++])];
    } else {
      NextCharacter(word, at);
      token = model_.vocab.Find(word.substr(begin, at - begin));
    }
    if (token >= 0) {
      FlushUnknown();
      AddSymbol(token);
    } else if (bytes || !AddBytes(word.substr(begin, at - begin))) {
      HEDDLE_RETURN_IF_ERROR(AddUnknown(word.substr(begin, at - begin)));
    }
  }
  FlushUnknown();
  Merge();
  for (const Symbol& symbol : symbols_) {
    if (symbol.token >= 0) out.push_back(symbol.token);
  }
  return Done{};
}

bool BpeEncoder::AddBytes(std::string_view character) {
  if (!model_.byte_fallback) return false;
  auto token = [&](char c) { return model_.bytes[static_cast<unsigned char>(c)]; };
  if (std::ranges::any_of(character, [&](char c) { return token(c) < 0; })) return false;
  for (char c : character) AddSymbol(token(c));
  return true;
}

// Without a token for them, unknown characters are dropped.
Status BpeEncoder::AddUnknown(std::string_view character) {
  if (!model_.has_unknown) return Done{};
  if (model_.unknown < 0)
    return Error(Diag::kTokenizer,
                 "`{}` is not in the vocabulary, and neither is the token for unknown characters",
                 character);
  if (!model_.fuse_unknown) FlushUnknown();
  pending_unknown_ = true;
  return Done{};
}

void BpeEncoder::FlushUnknown() {
  if (pending_unknown_) AddSymbol(model_.unknown);
  pending_unknown_ = false;
}

void BpeEncoder::AddSymbol(int32_t token) {
  auto at = static_cast<int32_t>(symbols_.size());
  if (at > 0) symbols_.back().next = at;
  symbols_.push_back({token, at - 1, -1});
}

void BpeEncoder::AddCandidate(int32_t at) {
  const Symbol& left = symbols_[static_cast<size_t>(at)];
  if (left.next < 0) return;
  const BpeMerge* merge =
      model_.FindMerge(left.token, symbols_[static_cast<size_t>(left.next)].token);
  if (merge == nullptr) return;
  heap_.push_back({merge->rank, at, merge->token});
  std::push_heap(heap_.begin(), heap_.end());
}

void BpeEncoder::Merge() {
  heap_.clear();
  for (size_t i = 0; i < symbols_.size(); ++i) AddCandidate(static_cast<int32_t>(i));
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    Candidate best = heap_.back();
    heap_.pop_back();
    Symbol& left = symbols_[static_cast<size_t>(best.at)];
    if (left.token < 0 || left.next < 0) continue;
    Symbol& right = symbols_[static_cast<size_t>(left.next)];
    // One of the two was merged since.
    const BpeMerge* merge = model_.FindMerge(left.token, right.token);
    if (merge == nullptr || merge->token != best.token) continue;
    left.token = best.token;
    left.next = right.next;
    right.token = -1;
    if (left.next >= 0) symbols_[static_cast<size_t>(left.next)].previous = best.at;
    if (left.previous >= 0) AddCandidate(left.previous);
    AddCandidate(best.at);
  }
}

}  // namespace heddle::run
