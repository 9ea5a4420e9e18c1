// Reads the model and the added tokens of tokenizer.json.
#include <algorithm>

#include "heddle/core/base/text.h"
#include "heddle/core/base/utf8.h"
#include "heddle/run/tokenizer/tokenizer_reader.h"

namespace heddle::run {
namespace {

// Finding an added token compares up to this many bytes at each position of a text.
constexpr size_t kLongestAdded = 1024;
// Only sequences of this character join across words.
constexpr std::string_view kWordBoundary = "\u2581";

}  // namespace

Status TokenizerReader::SetText(JsonValue at, int32_t id, std::string_view text) {
  auto index = static_cast<size_t>(id);
  if (index >= parts_.texts.size()) parts_.texts.resize(index + 1);
  if (!parts_.texts[index].empty() && parts_.texts[index] != text)
    return Fail(at, "token {} is `{}` and `{}`", id, parts_.texts[index], text);
  parts_.texts[index] = text;
  return Done{};
}

Status TokenizerReader::ReadVocab(JsonValue vocab) {
  if (!vocab.is_object()) return WrongKind(vocab, "an object");
  for (auto [text, value] : vocab.fields()) {
    HEDDLE_TRY(int32_t id, TokenId(value));
    if (text.empty()) return Fail(value, "a token has no text");
    HEDDLE_RETURN_IF_ERROR(SetText(value, id, text));
    parts_.model.vocab.Add(text, id);
    if (!byte_level_) continue;
    std::string bytes;
    bool all = true;
    for (size_t at = 0; at < text.size() && all;) {
      int byte = ByteOfCharacter(NextCharacter(text, at));
      all = byte >= 0;
      bytes += static_cast<char>(byte);
    }
    if (all) parts_.model.words.Add(bytes, id);
  }
  return Done{};
}

Status TokenizerReader::ReadMerge(JsonValue merge, uint32_t rank) {
  std::vector<std::string_view> pair;
  if (merge.is_string()) {
    pair = Split(merge.string(), ' ');
  } else {
    for (JsonValue text : merge.items()) {
      if (text.is_string()) pair.push_back(text.string());
    }
  }
  if (pair.size() != 2) return WrongKind(merge, "two tokens");
  const TokenTable& vocab = parts_.model.vocab;
  std::string whole = fmt::format("{}{}", pair[0], pair[1]);
  int32_t left = vocab.Find(pair[0]);
  int32_t right = vocab.Find(pair[1]);
  int32_t token = vocab.Find(whole);
  if (left < 0 || right < 0 || token < 0)
    return Fail(merge, "`{}` is not in the vocabulary",
                left < 0    ? pair[0]
                : right < 0 ? pair[1]
                            : std::string_view(whole));
  parts_.model.AddMerge(left, right, {rank, token});
  if (pair[1].starts_with(kWordBoundary) && !pair[0].ends_with(kWordBoundary))
    has_boundary_ = false;
  return Done{};
}

Status TokenizerReader::ReadMerges(JsonValue merges) {
  if (!merges.is_array()) return WrongKind(merges, "a list");
  size_t count = 0;
  for ([[maybe_unused]] JsonValue merge : merges.items()) ++count;
  parts_.model.ReserveMerges(count);
  uint32_t rank = 0;
  for (JsonValue merge : merges.items()) HEDDLE_RETURN_IF_ERROR(ReadMerge(merge, rank++));
  return Done{};
}

Status TokenizerReader::ReadByteTokens(JsonValue model) {
  BpeModel& bpe = parts_.model;
  bool all = true;
  for (size_t byte = 0; byte < 256; ++byte) {
    std::string text;
    if (byte_level_) {
      AppendUtf8(text, CharacterOfByte(static_cast<uint8_t>(byte)));
    } else {
      text = fmt::format("<0x{:02X}>", byte);
    }
    bpe.bytes[byte] = bpe.vocab.Find(text);
    all = all && bpe.bytes[byte] >= 0;
  }
  // The bytes of a byte's character, which no known tokenizer wants.
  if (byte_level_ && bpe.byte_fallback && !all)
    return Fail(model, "`byte_fallback` with ByteLevel needs a token for each byte");
  // Unknown characters would be joined across a boundary.
  if (!byte_level_ && bpe.byte_fallback && all && has_boundary_ &&
      bpe.vocab.Find(kWordBoundary) >= 0)
    bpe.boundary = kWordBoundary;
  return Done{};
}

Status TokenizerReader::ReadModel(JsonValue model) {
  if (!model.is_object()) return WrongKind(model, "an object");
  std::string_view kind = "BPE";
  // Old files of BPE have no type.
  if (Given(model, "type")) {
    HEDDLE_TRY(kind, Text(model, "type"));
  }
  if (kind != "BPE") return Unsupported(model, kind, "BPE");
  if (std::optional<JsonValue> dropout = Given(model, "dropout"))
    if (!dropout->is_number() || dropout->number() != 0)
      return Fail(*dropout, "`{}` is {}, which makes tokens random; expected null", dropout->path(),
                  Shown(*dropout));
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    std::optional<JsonValue> value = Given(model, name);
    if (value && (!value->is_string() || !value->string().empty()))
      return Fail(*value, "`{}` is {}, which is not supported", value->path(), Shown(*value));
  }
  BpeModel& bpe = parts_.model;
  HEDDLE_TRY(bpe.fuse_unknown, Flag(model, "fuse_unk", false));
  HEDDLE_TRY(bpe.byte_fallback, Flag(model, "byte_fallback", false));
  HEDDLE_TRY(bpe.ignore_merges, Flag(model, "ignore_merges", false));
  bpe.units = byte_level_ ? BpeModel::Units::kBytes : BpeModel::Units::kCharacters;
  HEDDLE_TRY(JsonValue vocab, Need(model, "vocab"));
  HEDDLE_RETURN_IF_ERROR(ReadVocab(vocab));
  HEDDLE_TRY(JsonValue merges, Need(model, "merges"));
  HEDDLE_RETURN_IF_ERROR(ReadMerges(merges));
  if (Given(model, "unk_token")) {
    HEDDLE_TRY(std::string_view unknown, Text(model, "unk_token"));
    bpe.has_unknown = true;
    bpe.unknown = bpe.vocab.Find(unknown);
  }
  return ReadByteTokens(model);
}

Status TokenizerReader::ReadAdded(JsonValue list) {
  if (!list.is_array()) return WrongKind(list, "a list");
  for (JsonValue item : list.items()) {
    if (!item.is_object()) return WrongKind(item, "an object");
    AddedToken token;
    HEDDLE_TRY(JsonValue id, Need(item, "id"));
    HEDDLE_TRY(token.id, TokenId(id));
    HEDDLE_TRY(std::string_view content, Text(item, "content"));
    HEDDLE_TRY(token.single_word, Flag(item, "single_word", false));
    HEDDLE_TRY(token.lstrip, Flag(item, "lstrip", false));
    HEDDLE_TRY(token.rstrip, Flag(item, "rstrip", false));
    HEDDLE_TRY(token.special, Flag(item, "special", false));
    HEDDLE_TRY(token.normalized, Flag(item, "normalized", !token.special));
    if (content.empty() || content.size() > kLongestAdded)
      return Fail(item, "`{}` has a content of {}, expected 1 to {}", item.path(),
                  Counted(content.size(), "byte"), kLongestAdded);
    int32_t known = parts_.model.vocab.Find(content);
    if (known >= 0 && known != token.id)
      return Fail(id, "the added token `{}` is {}, but {} in the vocabulary", content, token.id,
                  known);
    HEDDLE_RETURN_IF_ERROR(SetText(id, token.id, content));
    token.content = content;
    parts_.added.push_back(std::move(token));
  }
  // One text with two ids would decode to itself, but encode to one of them.
  std::vector<std::string_view> contents;
  for (const AddedToken& token : parts_.added) contents.push_back(token.content);
  std::ranges::sort(contents);
  if (auto twice = std::ranges::adjacent_find(contents); twice != contents.end())
    return Fail(list, "the added token `{}` is given twice", *twice);
  return Done{};
}

}  // namespace heddle::run
