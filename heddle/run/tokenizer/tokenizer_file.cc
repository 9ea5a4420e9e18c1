// Reads tokenizer.json: its fields, and the steps around the model.
#include <algorithm>
#include <array>

#include "heddle/core/base/text.h"
#include "heddle/core/base/utf8.h"
#include "heddle/run/tokenizer/tokenizer_reader.h"

namespace heddle::run {
namespace {

constexpr int kDeepestTokenizer = 64;

}  // namespace

Result<JsonValue> TokenizerReader::Need(JsonValue object, std::string_view name) const {
  std::optional<JsonValue> value = object.Find(name);
  if (!value) return Missing(object, name);
  return *value;
}

Result<std::string_view> TokenizerReader::Text(JsonValue object, std::string_view name) const {
  HEDDLE_TRY(JsonValue value, Need(object, name));
  if (!value.is_string()) return WrongKind(value, "text");
  return value.string();
}

Result<bool> TokenizerReader::Flag(JsonValue object, std::string_view name, bool otherwise) const {
  std::optional<JsonValue> value = Given(object, name);
  if (!value) return otherwise;
  if (!value->is_bool()) return WrongKind(*value, "true or false");
  return value->boolean();
}

Result<int64_t> TokenizerReader::Count(JsonValue object, std::string_view name,
                                       int64_t most) const {
  HEDDLE_TRY(JsonValue value, Need(object, name));
  if (!value.is_int() || value.integer() < 0 || value.integer() > most)
    return WrongKind(value, fmt::format("a whole number from 0 to {}", most));
  return value.integer();
}

Result<int32_t> TokenizerReader::TokenId(JsonValue value) const {
  if (!value.is_int() || value.integer() < 0 || value.integer() >= kMostTokens)
    return WrongKind(value, fmt::format("the number of a token, less than {}", kMostTokens));
  return static_cast<int32_t>(value.integer());
}

Result<std::string_view> TokenizerReader::Character(JsonValue object, std::string_view name) const {
  HEDDLE_TRY(std::string_view text, Text(object, name));
  if (text.empty() || Utf8Length(text) != text.size())
    return WrongKind(*object.Find(name), "one character");
  return text;
}

Failure TokenizerReader::Unsupported(JsonValue object, std::string_view kind,
                                     std::string_view known) const {
  return Fail(object, "`{}` is of type {}, which is not supported; supported: {}", object.path(),
              kind, known);
}

Result<Pattern> TokenizerReader::ReadPattern(JsonValue object) const {
  HEDDLE_TRY(JsonValue value, Need(object, "pattern"));
  if (std::optional<JsonValue> literal = value.Find("String")) {
    if (!literal->is_string() || literal->string().empty())
      return WrongKind(*literal, "text that is not empty");
    return Pattern::Literal(std::string(literal->string()));
  }
  if (!value.Find("Regex")) return WrongKind(value, "an object with `String` or `Regex`");
  HEDDLE_TRY(std::string_view expression, Text(value, "Regex"));
  Result<Pattern> pattern = Pattern::Regex(expression);
  if (!pattern.ok())
    return Fail(*value.Find("Regex"), "`{}`: {}", value.Find("Regex")->path(),
                pattern.diagnostics()[0].message);
  return pattern;
}

template <typename Read>
Status TokenizerReader::ReadSteps(JsonValue part, std::string_view list, Read&& read) {
  if (!part.is_object()) return WrongKind(part, "an object");
  HEDDLE_TRY(std::string_view kind, Text(part, "type"));
  if (kind != "Sequence") return read(part, kind);
  HEDDLE_TRY(JsonValue steps, Need(part, list));
  if (!steps.is_array()) return WrongKind(steps, "a list");
  for (JsonValue step : steps.items()) HEDDLE_RETURN_IF_ERROR(ReadSteps(step, list, read));
  return Done{};
}

Status TokenizerReader::ReadNormalizer(JsonValue part, std::string_view kind) {
  constexpr std::array<std::string_view, 4> kForms = {"NFC", "NFD", "NFKC", "NFKD"};
  if (auto form = std::ranges::find(kForms, kind); form != kForms.end()) {
    parts_.normalizer.emplace_back(static_cast<NormalForm>(form - kForms.begin()));
  } else if (kind == "Replace") {
    HEDDLE_TRY(Pattern pattern, ReadPattern(part));
    HEDDLE_TRY(std::string_view content, Text(part, "content"));
    parts_.normalizer.emplace_back(ReplaceStep{std::move(pattern), std::string(content)});
  } else if (kind == "Prepend") {
    HEDDLE_TRY(std::string_view content, Text(part, "prepend"));
    parts_.normalizer.emplace_back(PrependStep{std::string(content)});
  } else if (kind == "Strip") {
    StripStep step;
    HEDDLE_TRY(step.left, Flag(part, "strip_left", true));
    HEDDLE_TRY(step.right, Flag(part, "strip_right", true));
    parts_.normalizer.emplace_back(step);
  } else if (kind == "Lowercase") {
    parts_.normalizer.emplace_back(LowercaseStep{});
  } else {
    return Unsupported(part, kind,
                       "NFC, NFD, NFKC, NFKD, Replace, Prepend, Strip, Lowercase, Sequence");
  }
  return Done{};
}

Status TokenizerReader::ReadSplit(JsonValue part) {
  HEDDLE_TRY(Pattern pattern, ReadPattern(part));
  HEDDLE_TRY(std::string_view name, Text(part, "behavior"));
  constexpr std::array<std::string_view, 5> kNames = {"Removed", "Isolated", "MergedWithPrevious",
                                                      "MergedWithNext", "Contiguous"};
  auto behavior = std::ranges::find(kNames, name);
  if (behavior == kNames.end())
    return WrongKind(*part.Find("behavior"), "one of " + Join(kNames, ", "));
  HEDDLE_TRY(bool invert, Flag(part, "invert", false));
  parts_.pre_tokenizer.emplace_back(
      SplitStep{std::move(pattern), static_cast<SplitBehavior>(behavior - kNames.begin()), invert});
  return Done{};
}

Status TokenizerReader::ReadMetaspace(JsonValue part) {
  HEDDLE_TRY(std::string_view replacement, Character(part, "replacement"));
  MetaspaceStep step{.replacement = std::string(replacement)};
  HEDDLE_TRY(step.split, Flag(part, "split", true));
  if (Given(part, "prepend_scheme")) {
    HEDDLE_TRY(std::string_view scheme, Text(part, "prepend_scheme"));
    constexpr std::array<std::string_view, 3> kSchemes = {"never", "first", "always"};
    auto found = std::ranges::find(kSchemes, scheme);
    if (found == kSchemes.end())
      return WrongKind(*part.Find("prepend_scheme"), "never, first or always");
    step.prepend = static_cast<MetaspaceStep::Prepend>(found - kSchemes.begin());
  } else {
    // The field of older files.
    HEDDLE_TRY(bool prepends, Flag(part, "add_prefix_space", true));
    if (!prepends) step.prepend = MetaspaceStep::Prepend::kNever;
  }
  parts_.pre_tokenizer.emplace_back(std::move(step));
  return Done{};
}

Status TokenizerReader::ReadPreTokenizer(JsonValue part, std::string_view kind) {
  if (byte_level_)
    return Fail(part, "`{}` follows ByteLevel, which is supported only as the last step",
                part.path());
  if (kind == "Split") return ReadSplit(part);
  if (kind == "Metaspace") return ReadMetaspace(part);
  std::string_view expression;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
  if (kind == "Digits") {
    HEDDLE_TRY(bool individual, Flag(part, "individual_digits", false));
    expression = "\\p{N}";
    if (!individual) behavior = SplitBehavior::kContiguous;
  } else if (kind == "Whitespace") {
    expression = "[\\w\\x{200C}\\x{200D}]+|[^\\w\\x{200C}\\x{200D}\\s]+";
    behavior = SplitBehavior::kRemoved;
    invert = true;
  } else if (kind == "ByteLevel") {
    byte_level_ = true;
    HEDDLE_TRY(bool prefix, Flag(part, "add_prefix_space", true));
    if (prefix) parts_.pre_tokenizer.emplace_back(PrefixSpaceStep{});
    HEDDLE_TRY(bool splits, Flag(part, "use_regex", true));
    if (!splits) return Done{};
    // GPT-2's words.
    expression =
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
  } else {
    return Unsupported(part, kind, "ByteLevel, Split, Digits, Metaspace, Whitespace, Sequence");
  }
  HEDDLE_TRY(Pattern pattern, Pattern::Regex(expression));
  parts_.pre_tokenizer.emplace_back(SplitStep{std::move(pattern), behavior, invert});
  return Done{};
}

Status TokenizerReader::ReadTemplate(JsonValue part) {
  HEDDLE_TRY(JsonValue single, Need(part, "single"));
  std::optional<JsonValue> tokens = part.Find("special_tokens");
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  int texts = 0;
  for (JsonValue piece : single.items()) {
    if (piece.Find("Sequence")) {
      ++texts;
      continue;
    }
    std::optional<JsonValue> special = piece.Find("SpecialToken");
    if (!special) return WrongKind(piece, "an object with `Sequence` or `SpecialToken`");
    HEDDLE_TRY(std::string_view name, Text(*special, "id"));
    std::optional<JsonValue> token = tokens ? tokens->Find(name) : std::nullopt;
    if (!token)
      return Fail(*special, "`{}` has the token `{}`, which `special_tokens` does not define",
                  special->path(), name);
    HEDDLE_TRY(JsonValue ids, Need(*token, "ids"));
    for (JsonValue id : ids.items()) {
      HEDDLE_TRY(int32_t number, TokenId(id));
      if (static_cast<size_t>(number) >= parts_.texts.size())
        return Fail(id, "token {} is not in the vocabulary", number);
      (texts == 0 ? before : after).push_back(number);
    }
  }
  if (texts != 1)
    return Fail(single, "`{}` has {}, expected 1", single.path(), Counted(int64_t{texts}, "text"));
  parts_.before.insert(parts_.before.begin(), before.begin(), before.end());
  parts_.after.insert(parts_.after.end(), after.begin(), after.end());
  return Done{};
}

Status TokenizerReader::ReadPostProcessor(JsonValue part, std::string_view kind) {
  if (kind == "TemplateProcessing") return ReadTemplate(part);
  // It changes offsets, not tokens.
  if (kind == "ByteLevel") return Done{};
  return Unsupported(part, kind, "TemplateProcessing, ByteLevel, Sequence");
}

Status TokenizerReader::ReadDecoder(JsonValue part, std::string_view kind) {
  if (kind == "ByteLevel") {
    parts_.decoder.emplace_back(ByteLevelDecoder{});
  } else if (kind == "ByteFallback") {
    parts_.decoder.emplace_back(ByteFallbackDecoder{});
  } else if (kind == "Fuse") {
    parts_.decoder.emplace_back(FuseDecoder{});
  } else if (kind == "Strip") {
    HEDDLE_TRY(std::string_view content, Character(part, "content"));
    HEDDLE_TRY(int64_t start, Count(part, "start", 1 << 20));
    HEDDLE_TRY(int64_t stop, Count(part, "stop", 1 << 20));
    size_t at = 0;
    parts_.decoder.emplace_back(StripDecoder{NextCharacter(content, at), static_cast<size_t>(start),
                                             static_cast<size_t>(stop)});
  } else if (kind == "Replace") {
    HEDDLE_TRY(Pattern pattern, ReadPattern(part));
    HEDDLE_TRY(std::string_view content, Text(part, "content"));
    parts_.decoder.emplace_back(ReplaceDecoder{std::move(pattern), std::string(content)});
  } else if (kind == "Metaspace") {
    HEDDLE_TRY(std::string_view replacement, Character(part, "replacement"));
    MetaspaceDecoder step;
    size_t at = 0;
    step.replacement = NextCharacter(replacement, at);
    if (Given(part, "prepend_scheme")) {
      HEDDLE_TRY(std::string_view scheme, Text(part, "prepend_scheme"));
      step.drops_first = scheme != "never";
    } else {
      HEDDLE_TRY(step.drops_first, Flag(part, "add_prefix_space", true));
    }
    parts_.decoder.emplace_back(step);
  } else {
    return Unsupported(part, kind,
                       "ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, Sequence");
  }
  return Done{};
}

Result<TokenizerParts> TokenizerReader::Run() {
  JsonValue root = document_.root();
  if (!root.is_object()) return Fail(root, "the file is {}, expected an object", Shown(root));
  if (auto part = Given(root, "normalizer"))
    HEDDLE_RETURN_IF_ERROR(ReadSteps(*part, "normalizers", [&](JsonValue step, auto kind) {
      return ReadNormalizer(step, kind);
    }));
  if (auto part = Given(root, "pre_tokenizer"))
    HEDDLE_RETURN_IF_ERROR(ReadSteps(*part, "pretokenizers", [&](JsonValue step, auto kind) {
      return ReadPreTokenizer(step, kind);
    }));
  HEDDLE_TRY(JsonValue model, Need(root, "model"));
  HEDDLE_RETURN_IF_ERROR(ReadModel(model));
  if (auto list = Given(root, "added_tokens")) HEDDLE_RETURN_IF_ERROR(ReadAdded(*list));
  if (parts_.texts.empty()) return Fail(model, "the vocabulary is empty");
  if (auto part = Given(root, "post_processor"))
    HEDDLE_RETURN_IF_ERROR(ReadSteps(*part, "processors", [&](JsonValue step, auto kind) {
      return ReadPostProcessor(step, kind);
    }));
  if (auto part = Given(root, "decoder")) {
    parts_.has_decoder = true;
    HEDDLE_RETURN_IF_ERROR(ReadSteps(
        *part, "decoders", [&](JsonValue step, auto kind) { return ReadDecoder(step, kind); }));
  }
  return std::move(parts_);
}

Result<TokenizerParts> ReadTokenizerParts(std::string text, std::string file) {
  HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(std::move(text), std::move(file),
                                                        Diag::kTokenizer, kDeepestTokenizer));
  return TokenizerReader(document).Run();
}

}  // namespace heddle::run
