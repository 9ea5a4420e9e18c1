// For tokenizer_file.cc and model_file.cc: the reader of tokenizer.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "heddle/core/base/json.h"
#include "heddle/run/tokenizer/tokenizer.h"

namespace heddle::run {

// Reads one file. Every error has a position in it.
class TokenizerReader {
 public:
  // Far above the vocabularies that exist. Tables have an entry for each number up to the largest.
  static constexpr int64_t kMostTokens = int64_t{1} << 22;

  explicit TokenizerReader(const JsonDocument& document) : document_(document) {}
  Result<TokenizerParts> Run();

 private:
  // --- Fields. A missing one is an error if `otherwise` is not given.
  template <typename... Args>
  Failure Fail(JsonValue at, fmt::format_string<Args...> format, Args&&... args) const {
    return document_.Fail(at, "{}", fmt::format(format, std::forward<Args>(args)...));
  }
  Failure WrongKind(JsonValue at, std::string_view expected) const {
    return Fail(at, "`{}` is {}, expected {}", at.path(), Shown(at), expected);
  }
  Failure Missing(JsonValue object, std::string_view name) const {
    return Fail(object, "`{}` has no `{}`", object.path(), name);
  }
  // Null if the field is missing or null.
  static std::optional<JsonValue> Given(JsonValue object, std::string_view name) {
    std::optional<JsonValue> value = object.Find(name);
    return value && !value->is_null() ? value : std::nullopt;
  }
  Result<JsonValue> Need(JsonValue object, std::string_view name) const;
  Result<std::string_view> Text(JsonValue object, std::string_view name) const;
  Result<bool> Flag(JsonValue object, std::string_view name, bool otherwise) const;
  Result<int64_t> Count(JsonValue object, std::string_view name, int64_t most) const;
  Result<int32_t> TokenId(JsonValue value) const;
  // The character that a field consists of.
  Result<std::string_view> Character(JsonValue object, std::string_view name) const;
  Result<Pattern> ReadPattern(JsonValue object) const;
  Failure Unsupported(JsonValue object, std::string_view kind, std::string_view known) const;
  // Reads a part with the steps of its `list`, if it is a Sequence, or its single step.
  template <typename Read>
  Status ReadSteps(JsonValue part, std::string_view list, Read&& read);

  // --- Parts
  Status ReadNormalizer(JsonValue part, std::string_view kind);
  Status ReadPreTokenizer(JsonValue part, std::string_view kind);
  Status ReadPostProcessor(JsonValue part, std::string_view kind);
  Status ReadDecoder(JsonValue part, std::string_view kind);
  Status ReadSplit(JsonValue part);
  Status ReadMetaspace(JsonValue part);
  Status ReadTemplate(JsonValue part);

  // --- Model
  Status ReadModel(JsonValue model);
  Status ReadVocab(JsonValue vocab);
  Status ReadMerges(JsonValue merges);
  Status ReadMerge(JsonValue merge, uint32_t rank);
  Status ReadByteTokens(JsonValue model);
  Status ReadAdded(JsonValue list);
  Status SetText(JsonValue at, int32_t id, std::string_view text);

  const JsonDocument& document_;
  TokenizerParts parts_;
  bool byte_level_ = false;
  // No merge joins U+2581 to a character before it.
  bool has_boundary_ = true;
};

}  // namespace heddle::run
