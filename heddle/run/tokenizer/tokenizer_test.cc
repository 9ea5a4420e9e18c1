#include "heddle/run/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

namespace heddle::run {
namespace {

// A tokenizer with some fields of its file replaced. `fields` are further ones of the file.
std::string WithFields(const std::string& fields, const std::string& model_fields = "",
                       const std::string& vocab = R"("a": 0, "b": 1, "ab": 2, "\u0120": 3)",
                       const std::string& merges = R"(["a", "b"])") {
  return fmt::format(R"({{"model": {{"type": "BPE", "vocab": {{{}}}, "merges": [{}]{}}}{}}})",
                     vocab, merges, model_fields, fields);
}

std::string ErrorOf(const std::string& file) {
  auto tokenizer = Tokenizer::Parse(file, "tokenizer.json");
  return tokenizer.ok() ? "" : Format(tokenizer.diagnostics());
}

std::vector<int32_t> TokensOf(const std::string& file, std::string_view text) {
  auto tokenizer = Tokenizer::Parse(file, "tokenizer.json");
  if (!tokenizer.ok()) {
    ADD_FAILURE() << Format(tokenizer.diagnostics());
    return {};
  }
  std::vector<int32_t> tokens;
  Status done = TextEncoder(**tokenizer).Encode(text, tokens);
  EXPECT_TRUE(done.ok()) << Format(done.diagnostics());
  return tokens;
}

std::string SplitBy(const std::string& expression) {
  return fmt::format(R"(, "pre_tokenizer": {{"type": "Split", "behavior": "Isolated",
                         "pattern": {{"Regex": "{}"}}}})",
                     expression);
}

TEST(Tokenizer, MergesByRank) {
  std::string file = WithFields("", "", R"("a": 0, "b": 1, "ab": 2, "ba": 3, "bab": 4)",
                                R"("b a", "a b", "ba b")");
  EXPECT_EQ(TokensOf(file, "abab"), (std::vector<int32_t>{0, 4}));
  EXPECT_EQ(TokensOf(file, "aab"), (std::vector<int32_t>{0, 2}));
  EXPECT_TRUE(TokensOf(file, "").empty());
}

TEST(Tokenizer, DecodesBytesThatAreNotUtf8) {
  auto tokenizer =
      Tokenizer::Parse(WithFields(R"(, "decoder": {"type": "ByteLevel"})", "",
                                  R"("\u00e2": 0, "\u0124": 1, "\u00ac": 2, "a": 3)", ""),
                       "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << Format(tokenizer.diagnostics());
  // The bytes of the euro sign are E2 82 AC; 82 is written as U+0124. Token 9 does not exist.
  EXPECT_EQ(*(*tokenizer)->Decode(std::vector<int64_t>{0, 1, 2, 9, 3}), "\u20ACa");
  EXPECT_EQ(*(*tokenizer)->Decode(std::vector<int64_t>{0, 1, 3}), "\uFFFDa");
  EXPECT_EQ(*(*tokenizer)->Decode(std::vector<int64_t>{1, 2}), "\uFFFD\uFFFD");
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  auto tokenizer = *Tokenizer::Parse(WithFields(""), "tokenizer.json");
  std::vector<int32_t> tokens;
  Status done = TextEncoder(*tokenizer).Encode("ab\xFF", tokens);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.diagnostics()[0].message, "byte 2 of the text is not UTF-8");
}

TEST(Tokenizer, EndsCatastrophicRegularExpressions) {
  auto tokenizer = *Tokenizer::Parse(WithFields(SplitBy("(a|aa)+$")), "tokenizer.json");
  std::vector<int32_t> tokens;
  Status done = TextEncoder(*tokenizer).Encode(std::string(200, 'a') + "b", tokens);
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.diagnostics()[0].message.find("fails at byte 0 of a text of 201"),
            std::string::npos)
      << Format(done.diagnostics());
}

TEST(Tokenizer, EndsNormalizersThatGrowWithoutBounds) {
  std::string grow;
  for (int i = 0; i < 12; ++i)
    grow += std::string(i == 0 ? "" : ",") +
            R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaaaaaaaa"})";
  auto tokenizer = *Tokenizer::Parse(
      WithFields(R"(, "normalizer": {"type": "Sequence", "normalizers": [)" + grow + "]}"),
      "tokenizer.json");
  std::vector<int32_t> tokens;
  EXPECT_FALSE(TextEncoder(*tokenizer).Encode("aaaa", tokens).ok());
}

TEST(Tokenizer, NamesWhatItRefuses) {
  struct Case {
    std::string file;
    std::string_view message;
  };
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += R"({"type": "Sequence", "normalizers": [)";
  const std::vector<Case> cases = {
      {"", "not JSON"},
      {"[]", "the file is a list, expected an object"},
      {"{}", "has no `model`"},
      {R"({"model": {"type": "Unigram"}})", "`model` is of type Unigram, which is not supported"},
      {WithFields(R"(, "normalizer": )" + deep), "nested more than 64 levels deep"},
      {WithFields(R"(, "normalizer": {"type": "BertNormalizer"})"),
       "`normalizer` is of type BertNormalizer"},
      {WithFields(R"(, "pre_tokenizer": {"type": "UnicodeScripts"})"), "UnicodeScripts"},
      {WithFields(R"(, "post_processor": {"type": "BertProcessing"})"), "BertProcessing"},
      {WithFields(R"(, "decoder": {"type": "WordPiece"})"), "WordPiece"},
      {WithFields("", R"(, "dropout": 0.1)"), "makes tokens random"},
      {WithFields("", R"(, "end_of_word_suffix": "</w>")"), "`model.end_of_word_suffix`"},
      {WithFields("", "", R"("a": 99999999999)"), "expected the number of a token"},
      {WithFields("", "", R"("a": -1)"), "expected the number of a token"},
      {WithFields("", "", R"("a": 0, "b": 0)", ""), "token 0 is `a` and `b`"},
      {WithFields("", "", R"("a": 0, "a": 1)", ""), "`a` is given twice"},
      {WithFields("", "", "\"a\xFF\": 0", ""), "not UTF-8"},
      {WithFields("", "", "", ""), "the vocabulary is empty"},
      // A merge of a token with itself whose result is that token.
      {WithFields("", "", R"("a": 0)", R"(["a", "a"])"), "`aa` is not in the vocabulary"},
      {WithFields("", "", R"("a": 0)", R"("a")"), "expected two tokens"},
      {WithFields(R"(, "added_tokens": [{"id": 7, "content": "a"}])"), "but 0 in the vocabulary"},
      {WithFields(R"(, "added_tokens": [{"id": 0, "content": "x"}])"), "token 0 is `a` and `x`"},
      {WithFields(R"(, "added_tokens": [{"id": 8, "content": ""}])"), "content of 0 bytes"},
      {WithFields(R"(, "pre_tokenizer": {"type": "Sequence", "pretokenizers":
                      [{"type": "ByteLevel"}, {"type": "Digits"}]})"),
       "`pre_tokenizer.pretokenizers[1]` follows ByteLevel"},
      {WithFields(SplitBy("(")), "the regular expression is wrong"},
      {WithFields(SplitBy("[[a]b]")), "has `[[` at character 2"},
      {WithFields(SplitBy("[a&&b]")), "has `&&`"},
      {WithFields(SplitBy("a{2}+")), "has `}+`"},
      {WithFields(SplitBy("a{,2}")), "has `{`"},
      {WithFields(SplitBy("(a)\\\\1")), "has `\\1`"},
      {WithFields(SplitBy("x(?i)a|b")), "has `(?i`"},
      {WithFields(SplitBy("(*NO_JIT)a")), "has `(*`"},
      {WithFields(SplitBy("a\\\\Kb")), "has `\\K`"},
      {WithFields(R"(, "post_processor": {"type": "TemplateProcessing", "single":
                      [{"SpecialToken": {"id": "<s>"}}], "special_tokens": {}})"),
       "has the token `<s>`"},
      {WithFields(R"(, "post_processor": {"type": "TemplateProcessing", "single": []})"),
       "has 0 texts, expected 1"},
  };
  for (const Case& c : cases) {
    std::string error = ErrorOf(c.file);
    EXPECT_NE(error.find(c.message), std::string::npos) << c.file << "\ngives: " << error;
    EXPECT_NE(error.find("[tokenizer]"), std::string::npos) << error;
    EXPECT_NE(error.find("tokenizer.json:"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace heddle::run
