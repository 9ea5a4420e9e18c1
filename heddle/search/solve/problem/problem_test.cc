// Tests valid and invalid problem files.
#include <random>
#include <string>

#include <gtest/gtest.h>
#include <zlib.h>

#include "heddle/core/base/gzip.h"
#include "heddle/search/solve/problem/problem_file.h"

namespace heddle::search {
namespace {

constexpr std::string_view kGood = R"({
  "format": "pairwise-sharding/1", "name": "small", "unit": "us", "meta": {"deep": [[[1]]]},
  "vars": [{"name": "a", "cost": [1, null]}, {"name": "b", "cost": [0.5, 2, 3e1], "labels": ["x"]}],
  "matrices": [[0, 1, 2, 3, null, 5]],
  "edges": [[0, 1, 0]],
  "hard": [{"u": 1, "v": 0, "kind": "tie", "pairs": [[0, 0], [1, 1]]}],
  "restrict": [{"v": 1, "kind": "input", "allowed": [0, 2]}],
  "linear": [{"name": "memory", "lo": 0, "hi": 2.5, "terms": [[0, [1, 2]], [1, [0, 0, 1]]]}]
})";

std::string Gzipped(std::string_view text) {
  z_stream stream{};
  EXPECT_EQ(::deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(::deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  ::deflateEnd(&stream);
  return out;
}

// Returns the first error of a text, without its file; empty if there is none.
std::string MessageOf(std::string_view text) {
  Result<ProblemFile> parsed = ParseProblem(std::string(text), "p.json");
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.diagnostics()[0].file, "p.json");
  return parsed.diagnostics()[0].message;
}

std::string Changed(std::string_view from, std::string_view to) {
  std::string text(kGood);
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ProblemFile, IsReadAsItStands) {
  for (const std::string& text : {std::string(kGood), Gzipped(kGood)}) {
    Result<ProblemFile> parsed = ParseProblem(text, "p.json");
    ASSERT_TRUE(parsed.ok()) << Format(parsed.diagnostics());
    EXPECT_EQ(parsed->name, "small");
    EXPECT_EQ(parsed->unit, "us");
    const PairwiseProblem& problem = parsed->problem;
    ASSERT_EQ(problem.variables.size(), 2u);
    EXPECT_EQ(problem.variables[VariableId(0)].cost, (std::vector<double>{1, kForbidden}));
    EXPECT_EQ(problem.variables[VariableId(1)].cost, (std::vector<double>{0.5, 2, 30}));
    EXPECT_EQ(problem.matrices[MatrixId(0)], (std::vector<double>{0, 1, 2, 3, kForbidden, 5}));
    EXPECT_EQ(problem.relations[0].pairs.size(), 2u);
    EXPECT_EQ(problem.restrictions[0].allowed, (std::vector<uint32_t>{0, 2}));
    EXPECT_EQ(problem.budgets[0].hi, 2.5);
    EXPECT_EQ(Cost(problem, {0, 0}), 1.5);
    EXPECT_EQ(Cost(problem, {0, 1}), kForbidden);
    EXPECT_EQ(Amount(problem.budgets[0], {1, 2}), 3);
    EXPECT_FALSE(Keeps(problem.budgets[0], 3));
    EXPECT_TRUE(Keeps(problem.budgets[0], 2.5 + 1e-9));
  }
}

TEST(ProblemFile, MistakesAreNamed) {
  const std::pair<std::string, std::string> cases[] = {
      {"{", "not JSON: "},
      {"", "not JSON: "},
      {"[]", "the file is a list, not an object"},
      {"{}", "`vars` is missing"},
      {Changed("\"vars\": [", "\"vars\": 3, \"other\": ["), "vars is a number, not a list"},
      {Changed("\"cost\": [1, null]", "\"cost\": []"), "variable 0 `a` has no choices"},
      {Changed("\"cost\": [1, null]", "\"costs\": [1]"), "vars[0]: `cost` is missing"},
      {Changed("[1, null]", "[1, \"x\"]"), "vars[0].cost[1] is text, not a number or null"},
      {Changed("[1, null]", "[1, 1e31]"),
       "entry 1 of the costs of `a` is 1e+31, not a number up to 1e+30 in size"},
      {Changed("[1, null]", "[1, NaN]"), "not JSON: "},
      {Changed("[1, null]", "[1, 1e999]"), "not JSON: "},
      {Changed("[0, 1, 2, 3, null, 5]", "[0, 1, 2, 3, null]"),
       "edge 0 of `a` and `b` needs 2 x 3 = 6 entries, matrix 0 has 5"},
      {Changed("[0, 1, 0]]", "[0, 2, 0]]"), "edge 0 names variable 2 of 2"},
      {Changed("[0, 1, 0]]", "[0, -1, 0]]"), "edges[0][1] is -1, not an index from 0 on"},
      {Changed("[0, 1, 0]]", "[0, 1.5, 0]]"), "edges[0][1] is 1.5, not an index from 0 on"},
      {Changed("[0, 1, 0]]", "[0, 1, 7]]"), "edge 0 names matrix 7 of 1"},
      {Changed("[0, 1, 0]]", "[0, 0, 0]]"), "edge 0 ties `a` to itself"},
      {Changed("[0, 1, 0]]", "[0, 1]]"), "edges[0] has 2 entries, [u, v, matrix] has 3"},
      {Changed("[0, 1, 0]]", "[0, 1, 0], [1, 0, 0]]"),
       "edges 0 and 1 join the same two variables; add their matrices"},
      {Changed("[1, 1]]", "[1, 2]]"),
       "relation 0 has the pair (1, 2); `b` has 3 choices and `a` has 2"},
      {Changed("[1, 1]]", "[0, 0]]"), "relation 0 has the pair (0, 0) twice"},
      {Changed("[1, 1]]", "[1]]"), "hard[0].pairs[1] has 1 entries, a pair has 2"},
      {Changed("\"u\": 1, \"v\": 0", "\"u\": 1, \"v\": 1"), "relation 0 ties `b` to itself"},
      {Changed("\"u\": 1, \"v\": 0", "\"u\": 1, \"u\": 0"), "not JSON: the key `u` is given twice"},
      {Changed("[0, 2]}]", "[0, 3]}]"), "restriction 0 allows choice 3 of `b`, which has 3"},
      {Changed("[0, 2]}]", "[0, 0]}]"), "restriction 0 allows choice 0 of `b` twice"},
      {Changed("\"hi\": 2.5", "\"hi\": -1"),
       "budget `memory` has no amounts between lo 0 and hi -1"},
      {Changed("[0, [1, 2]]", "[0, [1]]"),
       "budget `memory` has 1 amounts for `a`, which has 2 choices"},
      {Changed("[0, [1, 2]]", "[0, [1, null]]"), "linear[0].terms[0][1][1] is null, not a number"},
      {Changed("[0, [1, 2]]", "[1, [1, 2, 3]]"), "budget `memory` has two terms for `b`"},
      {Changed("pairwise-sharding/1", "pairwise-sharding/2"),
       "format is `pairwise-sharding/2`; this program reads `pairwise-sharding/1`"},
      {Changed("\"name\": \"small\"", "\"name\": 1"), "name is a number, not text"},
  };
  for (const auto& [text, message] : cases) {
    std::string found = MessageOf(text);
    EXPECT_TRUE(found.starts_with(message)) << found << "\nexpected: " << message;
  }
}

TEST(ProblemFile, TwoBudgetsOfOneNameAreAMistake) {
  std::string text =
      Changed("\"linear\": [", "\"linear\": [{\"name\": \"memory\", \"terms\": []}, ");
  EXPECT_EQ(MessageOf(text), "budget `memory` is given twice");
}

TEST(ProblemFile, ManyMistakesAreCounted) {
  std::string text = R"({"vars": [)";
  for (int i = 0; i < 1000; ++i) text += R"({"cost": []},)";
  text.back() = ']';
  text += "}";
  Result<ProblemFile> parsed = ParseProblem(text, "p.json");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.diagnostics()[0].kind, Diag::kProblem);
  EXPECT_EQ(parsed.diagnostics().back().kind, Diag::kManyMistakes);
  EXPECT_LT(parsed.diagnostics().size(), 50u);
}

TEST(ProblemFile, HostileTextsAreRefused) {
  auto repeat = [](std::string_view part, size_t times) {
    std::string out;
    for (size_t i = 0; i < times; ++i) out += part;
    return out;
  };
  EXPECT_TRUE(MessageOf(repeat("[", 100'000)).starts_with("not JSON: "));
  EXPECT_TRUE(MessageOf(repeat("{\"a\":", 100'000)).starts_with("not JSON: "));
  EXPECT_TRUE(
      MessageOf("{\"vars\": [], \"meta\": " + repeat("[", 100'000) + repeat("]", 100'000) + "}")
          .starts_with("not JSON: "));
  EXPECT_TRUE(MessageOf(std::string(kGood) + "}").starts_with("not JSON: "));
  EXPECT_TRUE(MessageOf(std::string_view("\xff\xfe\x00", 3)).starts_with("not JSON: "));
  // Every proper prefix of a valid text is invalid.
  for (size_t n = 0; n < kGood.size() - 1; ++n) EXPECT_NE(MessageOf(kGood.substr(0, n)), "");
}

// Damaged texts are rejected or read, without crashes.
TEST(ProblemFile, DamageDoesNoHarm) {
  std::mt19937 random(1);
  int read = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string text(kGood);
    for (size_t n = 1 + random() % 3; n > 0; --n) {
      size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text[at] = "0123456789-[]{},.:\"e"[random() % 20]; break;
        case 1: text.erase(at, 1 + random() % 5); break;
        default: text.insert(at, text.substr(random() % text.size(), random() % 9)); break;
      }
    }
    read += ParseProblem(text, "p.json").ok();
  }
  EXPECT_GT(read, 100);
}

// A few bytes that describe a problem too large for any memory.
TEST(ProblemFile, SizesAreBounded) {
  std::string costs = "[0";
  for (int k = 1; k < 6000; ++k) costs += ",0";
  costs += "]";
  std::string text = R"({"vars": [{"cost": )" + costs + R"(}, {"cost": )" + costs +
                     R"(}], "hard": [{"u": 0, "v": 1, "pairs": [[0, 0], [0, 1]]}]})";
  EXPECT_EQ(MessageOf(text),
            "36,000,000 matrix entries or more over all edges and relations, at most 33,554,432");
}

TEST(Gzip, GivesBackWhatWasCompressed) {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += static_cast<char>('a' + i / 7 % 26);
  EXPECT_EQ(*Gunzip(Gzipped(text), text.size()), text);
  EXPECT_EQ(*Gunzip(Gzipped("one ") + Gzipped("two"), 100), "one two");
  EXPECT_EQ(*Gunzip(Gzipped(""), 0), "");
}

TEST(Gzip, DamageIsNoticed) {
  std::string good = Gzipped(kGood);
  for (size_t n = 2; n < good.size(); ++n) {
    Result<std::string> cut = Gunzip(std::string_view(good).substr(0, n), 1 << 20);
    ASSERT_FALSE(cut.ok()) << n;
    EXPECT_EQ(cut.diagnostics()[0].kind, Diag::kGzip);
  }
  std::string wrong = good;
  wrong[wrong.size() / 2] ^= 0x55;
  EXPECT_FALSE(Gunzip(wrong, 1 << 20).ok());
  EXPECT_FALSE(Gunzip(good + "tail", 1 << 20).ok());
}

TEST(Gzip, BombsAreDefused) {
  std::string bomb = Gzipped(std::string(size_t{16} << 20, ' '));
  EXPECT_LT(bomb.size(), size_t{100'000});
  Result<std::string> small = Gunzip(bomb, 1 << 20);
  ASSERT_FALSE(small.ok());
  EXPECT_EQ(small.diagnostics()[0].message, "more than 1,048,576 bytes when uncompressed");
  std::string many;
  for (int i = 0; i < 5; ++i) many += bomb;
  EXPECT_EQ(MessageOf(many), "more than 67,108,864 bytes when uncompressed");
}

}  // namespace
}  // namespace heddle::search
