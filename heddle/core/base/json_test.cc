#include "heddle/core/base/json.h"

#include <gtest/gtest.h>

#include "heddle/core/base/json_fields.h"
#include "heddle/core/base/utf8.h"

namespace heddle {
namespace {

JsonDocument Read(std::string text) {
  return *JsonDocument::Parse(std::move(text), "a.json", Diag::kJson);
}

// The first line of the error for a text.
std::string JsonError(std::string text) {
  Result<JsonDocument> document = JsonDocument::Parse(std::move(text), "a.json", Diag::kJson);
  if (document.ok()) return "";
  std::string said = Format(document.diagnostics());
  return said.substr(0, said.find('\n'));
}

TEST(Json, ReadsValues) {
  JsonDocument document = Read(R"( {"a": [1, -2.5e1, true, null, "x"], "b": {"c": "\u00e9\n"}} )");
  JsonValue root = document.root();
  std::vector<JsonValue> items;
  for (JsonValue item : root.Find("a")->items()) items.push_back(item);
  ASSERT_EQ(items.size(), 5U);
  EXPECT_EQ(items[0].integer(), 1);
  EXPECT_EQ(items[0].number(), 1.0);
  EXPECT_EQ(items[1].number(), -25.0);
  EXPECT_TRUE(items[2].boolean());
  EXPECT_TRUE(items[3].is_null());
  EXPECT_EQ(items[4].string(), "x");
  EXPECT_EQ(root.Find("b")->Find("c")->string(), "\u00e9\n");
  EXPECT_FALSE(root.Find("c"));
  EXPECT_FALSE(items[0].Find("c"));
  EXPECT_TRUE(items[0].items().empty());
}

TEST(Json, KnowsPathsAndText) {
  JsonDocument document = Read(R"({"a": [0, {"b": ["]\"", {"c" : [ 1 ] } ]}], "d": 1.50})");
  JsonValue b = *(*++document.root().Find("a")->items().begin()).Find("b");
  EXPECT_EQ(document.root().path(), "");
  EXPECT_EQ(b.path(), "a[1].b");
  EXPECT_EQ((*b.items().begin()).path(), "a[1].b[0]");
  EXPECT_EQ((*b.items().begin()).raw(), R"("]\"")");
  EXPECT_EQ((*++b.items().begin()).raw(), R"({"c" : [ 1 ] })");
  EXPECT_EQ(document.root().Find("d")->raw(), "1.50");
  EXPECT_EQ(document.root().raw(), document.text());
  EXPECT_EQ(Shown(*document.root().Find("d")), "1.50");
  EXPECT_EQ(Shown(b), "a list");
}

TEST(Json, Numbers) {
  EXPECT_EQ(Read("9223372036854775807").root().integer(), INT64_MAX);
  EXPECT_EQ(Read("-9223372036854775808").root().integer(), INT64_MIN);
  JsonDocument large = Read("18446744073709551615");
  EXPECT_FALSE(large.root().is_int());
  EXPECT_EQ(large.root().number(), 18446744073709551615.0);
  EXPECT_EQ(Read("1e-400").root().number(), 0.0);
  EXPECT_EQ(Read("-0").root().integer(), 0);
  EXPECT_EQ(JsonError("1e999"),
            "a.json:1:1: not JSON: the number exceeds the range of a double [json]");
  EXPECT_EQ(JsonError("01"), "a.json:1:1: not JSON: a number begins with 0 [json]");
  EXPECT_EQ(JsonError("-"), "a.json:1:1: not JSON: expected digits [json]");
  EXPECT_EQ(JsonError("1."), "a.json:1:3: not JSON: expected digits after the point [json]");
  EXPECT_EQ(JsonError("1e+"), "a.json:1:4: not JSON: expected digits in an exponent [json]");
}

TEST(Json, RefusesOtherTexts) {
  EXPECT_EQ(JsonError(""), "a.json:1:1: not JSON: expected a value [json]");
  EXPECT_EQ(JsonError("nul"), "a.json:1:1: not JSON: expected a value [json]");
  EXPECT_EQ(JsonError("{} {}"), "a.json:1:4: not JSON: there is more text after the value [json]");
  EXPECT_EQ(JsonError("[1,\n2 3]"), "a.json:2:3: not JSON: expected `,` or `]` in a list [json]");
  EXPECT_EQ(JsonError("[1,]"), "a.json:1:4: not JSON: expected a value [json]");
  EXPECT_EQ(JsonError("{\"a\" 1}"), "a.json:1:6: not JSON: expected `:` after a key [json]");
  EXPECT_EQ(JsonError("{a: 1}"), "a.json:1:2: not JSON: expected a key in quotes [json]");
  EXPECT_EQ(JsonError("{\"a\": 1"),
            "a.json:1:8: not JSON: expected `,` or `}` in an object [json]");
  EXPECT_EQ(JsonError("{\"a\": 1, \"b\": 2, \"\\u0061\": 3}"),
            "a.json:1:18: not JSON: the key `a` is given twice [json]");
  EXPECT_EQ(JsonError("\"a"), "a.json:1:1: not JSON: a text in quotes does not end [json]");
  EXPECT_EQ(JsonError("\"a\\"), "a.json:1:3: not JSON: an escape that JSON does not have [json]");
  EXPECT_EQ(JsonError("\"\\x\""), "a.json:1:2: not JSON: an escape that JSON does not have [json]");
  EXPECT_EQ(JsonError("\"\\u12\""), "a.json:1:2: not JSON: \\u takes four digits [json]");
  EXPECT_EQ(JsonError("\"\\ud800\""), "a.json:1:2: not JSON: half of a pair of \\u escapes [json]");
  EXPECT_EQ(JsonError("\"\n\""),
            "a.json:1:2: not JSON: a text has a control character; write it as \\u.... [json]");
  EXPECT_EQ(JsonError("\"\xFF\""), "a.json:1:2: not JSON: a text is not UTF-8 [json]");
  EXPECT_EQ(JsonError(std::string(100'000, '[')),
            "a.json:1:1002: not JSON: values are nested more than 1000 levels deep [json]");
  EXPECT_EQ(Read("\"\\ud83d\\ude00\"").root().string(), "\xF0\x9F\x98\x80");
}

TEST(Json, FieldsCollectMistakes) {
  JsonDocument document = Read(R"({"a": {"n": -1, "rows": [[1, 2], [3]], "typo": 1},
 "list": [{"s": 0.5}, 7], "counts": [1, -2], "t": null})");
  JsonMistakes mistakes(document, Diag::kCostsFile);
  JsonFields fields(document.root(), mistakes);
  JsonFields a = fields.Object("a");
  EXPECT_EQ(a.NotNegative("n"), 0);
  EXPECT_EQ(a.Count("n", 1, 9, 3), 3);
  EXPECT_EQ(a.Rows("rows", 2).size(), 1U);
  EXPECT_EQ(a.Text("type", "x"), "x");
  a.Finish();
  std::vector<JsonFields> list = fields.Objects("list");
  EXPECT_EQ(list[0].Share("s"), 0.5);
  fields.Counts("counts");
  fields.Text("t");
  // A missing object is one mistake, not one for each of its fields.
  fields.Object("absent").Text("name");
  std::string said;
  for (const Diagnostic& d : mistakes.failure().diagnostics)
    said += fmt::format("{}:{} {}\n", d.line, d.column, d.message);
  EXPECT_EQ(said,
            "1:13 `a.n` is -1, expected a number of at least 0\n"
            "1:13 `a.n` is -1, expected a whole number from 1 to 9\n"
            "1:34 `a.rows[1]` is not a list of 2 numbers\n"
            "1:48 `a.typo` is not a field here; nearest is `type`\n"
            "2:23 `list[1]` is 7, expected an object\n"
            "2:41 `counts[1]` is -2, expected a whole number of at least 0\n"
            "2:51 `t` is null, expected a text\n"
            "1:1 `absent` is missing\n");
  JsonMistakes none(document, Diag::kCostsFile);
  EXPECT_EQ(JsonFields(document.root(), none, JsonFields::Nulls::kMissing).Text("t", "x"), "x");
  EXPECT_TRUE(none.empty());
}

TEST(Utf8, FindsTheFirstBadByte) {
  std::string text = "0123456789 \u00e9 0123456789";
  EXPECT_EQ(FirstNotUtf8(text), text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string bad = text;
    bad[i] = '\xFF';
    // A two-byte character is invalid from its first byte on.
    EXPECT_EQ(FirstNotUtf8(bad), i == 12 ? 11 : i);
  }
  EXPECT_EQ(Utf8Prefix("a\u00e9", 2), "a");
}

}  // namespace
}  // namespace heddle
