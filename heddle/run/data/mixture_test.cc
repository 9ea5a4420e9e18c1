#include "heddle/run/data/mixture.h"

#include <fstream>
#include <numeric>

#include <gtest/gtest.h>

#include "heddle/core/base/file.h"
#include "heddle/core/base/hash.h"

namespace heddle::run {
namespace {

using Tokens = std::vector<int64_t>;

struct MixedRows {
  Tokens tokens;
  Tokens labels;
};

class MixtureTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return dir_.path() + "/" + name; }
  std::string Put(const std::string& name, const std::string& content) {
    std::string path = Path(name);
    EXPECT_TRUE(MakeDirectories(path.substr(0, path.rfind('/'))).ok());
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  // A file of `count` tokens from `first` on.
  std::string PutTokens(const std::string& name, uint16_t first, size_t count) {
    std::vector<uint16_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), first);
    return Put(name, {reinterpret_cast<const char*>(tokens.data()), 2 * count});
  }
  // A mixture 7 : 3 of tokens from 0 and from 10,000 on.
  DatasetOptions Mixed() {
    std::string a = PutTokens("a.bin", 0, 401);
    PutTokens("b/x.bin", 10000, 40);
    PutTokens("b/y.bin", 10040, 41);
    DatasetOptions options;
    options.source = a + ":0.7," + Path("b") + "/:0.3";
    options.vocab = 65536;
    options.seq_len = 4;
    options.global_batch = 8;
    options.seed = 7;
    return options;
  }
  static std::unique_ptr<Dataset> MustOpen(const DatasetOptions& options) {
    Result<std::unique_ptr<Dataset>> data = Dataset::Open(options);
    EXPECT_TRUE(data.ok()) << Format(data.diagnostics());
    return data.ok() ? *std::move(data) : nullptr;
  }
  static MixedRows Read(const Dataset& data, const DatasetOptions& options, int64_t step,
                        int64_t first, int64_t rows, DataSplit split = DataSplit::kTrain) {
    auto size = static_cast<size_t>(rows * options.seq_len);
    MixedRows out{Tokens(size), Tokens(size)};
    Status read = data.Read(split, step, first, rows, out.tokens, out.labels);
    EXPECT_TRUE(read.ok()) << Format(read.diagnostics());
    return out;
  }
  std::string WithoutFolder(std::string text) const {
    for (size_t at; (at = text.find(dir_.path() + "/")) != std::string::npos;)
      text.erase(at, dir_.path().size() + 1);
    return text;
  }
  std::string Refusal(const DatasetOptions& options) const {
    Result<std::unique_ptr<Dataset>> data = Dataset::Open(options);
    return WithoutFolder(Format(data.diagnostics()));
  }

  TempDir dir_;
};

TEST_F(MixtureTest, EverySourceHasItsShareAfterEveryRow) {
  uint64_t random = 1;
  auto below = [&](uint64_t n) { return static_cast<int64_t>((random = Scramble(random)) % n); };
  for (int round = 0; round < 40; ++round) {
    std::vector<int64_t> weights(static_cast<size_t>(2 + below(6)));
    for (int64_t& weight : weights) weight = 1 + below(round % 2 == 0 ? 10 : 300);
    int64_t sum = std::accumulate(weights.begin(), weights.end(), int64_t{0});
    SourceOrder order(weights);
    std::vector<int64_t> counts(weights.size());
    // Two periods and a half.
    for (int64_t row = 0; row < 5 * sum / 2; ++row) {
      SourceOrder::Place place = order.At(static_cast<SourceOrder::Row>(row));
      ASSERT_EQ(static_cast<int64_t>(place.row), counts[place.source]++);
      for (size_t i = 0; i < weights.size(); ++i) {
        ASSERT_LT(std::abs(counts[i] * sum - (row + 1) * weights[i]), sum) << row;
        if (row % 17 != 0) continue;
        ASSERT_EQ(static_cast<int64_t>(order.Count(i, static_cast<SourceOrder::Row>(row + 1))),
                  counts[i]);
      }
    }
  }
  // MixedRows beyond 64 bits.
  SourceOrder order({7, 3});
  SourceOrder::Row huge = SourceOrder::Row{10} << 80;
  EXPECT_TRUE(order.At(huge + 4).row == (SourceOrder::Row{7} << 80) + 3);
}

TEST_F(MixtureTest, RowsFollowFromTheirNumbers) {
  DatasetOptions options = Mixed();
  auto data = MustOpen(options);
  std::vector<int64_t> from_b;
  for (int64_t step = 1; step <= 5; ++step) {
    MixedRows rows = Read(*data, options, step, 0, 8);
    for (size_t r = 0; r < 8; ++r) {
      int64_t first = rows.tokens[4 * r];
      if (first >= 10000) from_b.push_back(first);
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(rows.tokens[4 * r + i], first + static_cast<int64_t>(i));
        EXPECT_EQ(rows.labels[4 * r + i], rows.tokens[4 * r + i] + 1);
      }
    }
  }
  // 12 of 40 rows. They are the rows that the source has on its own.
  ASSERT_EQ(from_b.size(), 12u);
  DatasetOptions alone = options;
  alone.source = Path("b");
  alone.global_batch = 1;
  auto b = MustOpen(alone);
  for (size_t i = 0; i < from_b.size(); ++i)
    EXPECT_EQ(Read(*b, alone, static_cast<int64_t>(i) + 1, 0, 1).tokens[0], from_b[i]);
  // Another mesh reads fewer rows at a time, in any order, and another process starts later.
  auto again = MustOpen(options);
  for (int64_t step : {90, 3, 41}) {
    MixedRows all = Read(*data, options, step, 0, 8);
    for (int64_t row = 7; row >= 0; --row) {
      Tokens one = Read(*again, options, step, row, 1).tokens;
      EXPECT_TRUE(std::equal(one.begin(), one.end(), all.tokens.begin() + row * 4));
    }
  }
}

TEST_F(MixtureTest, TheDescriptionCountsEpochsOfEachSource) {
  DatasetOptions options = Mixed();
  EXPECT_EQ(WithoutFolder(MustOpen(options)->Describe(100)),
            "2 sources in proportions 7 : 3\n"
            "0.7 of a.bin: nanoGPT tokens: 401 tokens, 100 sequences of 4, 5.6 epochs\n"
            "0.3 of b/: nanoGPT tokens: 81 tokens, 20 sequences of 4, 12 epochs");
}

TEST_F(MixtureTest, EverySourceHoldsOutItsShare) {
  DatasetOptions options = Mixed();
  options.held_out = 0.5;
  auto data = MustOpen(options);
  ASSERT_TRUE(data->Has(DataSplit::kHeldOut));
  MixedRows rows = Read(*data, options, 1, 0, 10, DataSplit::kHeldOut);
  int64_t from_b = 0;
  for (size_t r = 0; r < 10; ++r) {
    int64_t first = rows.tokens[4 * r];
    from_b += first >= 10000;
    EXPECT_GE(first, first >= 10000 ? 10040 : 200);
  }
  EXPECT_EQ(from_b, 3);
  for (int64_t step = 1; step <= 40; ++step) {
    for (int64_t token : Read(*data, options, step, 0, 8).labels)
      EXPECT_LT(token >= 10000 ? token - 10000 : token, token >= 10000 ? 41 : 201);
  }
}

TEST_F(MixtureTest, FingerprintsHaveSourcesAndWeights) {
  DatasetOptions options = Mixed();
  std::string first = MustOpen(options)->Fingerprint();
  EXPECT_TRUE(first.starts_with("weights=7:3 global_batch=8 source1.tokens=401+0 source1.hash="))
      << first;
  EXPECT_NE(first.find(" source2.tokens=81+0 "), std::string::npos) << first;
  // Equal fields appear once.
  EXPECT_EQ(first.find("seq_len=4"), first.rfind("seq_len=4"));
  EXPECT_NE(first.find(" seq_len=4 "), std::string::npos);
  // The same ratios are the same data.
  std::string a = Path("a.bin");
  std::string b = Path("b/");
  options.source = a + ":14," + b + ":6";
  EXPECT_EQ(MustOpen(options)->Fingerprint(), first);
  for (const std::string& other : {a + ":6," + b + ":3", b + ":0.3," + a + ":0.7",
                                   a + ":0.7," + PutTokens("c.bin", 10000, 82) + ":0.3"}) {
    options.source = other;
    EXPECT_NE(MustOpen(options)->Fingerprint(), first);
  }
  // One source is that source.
  options.source = a + ":0.25";
  DatasetOptions plain = options;
  plain.source = a;
  EXPECT_EQ(MustOpen(options)->Fingerprint(), MustOpen(plain)->Fingerprint());
}

TEST_F(MixtureTest, TokensOfEverySourceAreChecked) {
  DatasetOptions options = Mixed();
  EXPECT_EQ(**MustOpen(options)->CheckTokens({}), 10080);
  options.vocab = 10080;
  Result<std::optional<int64_t>> found = MustOpen(options)->CheckTokens({.last_step = 1000});
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.diagnostics()[0].message.find("b/y.bin`: the token at byte 80 is 10080"),
            std::string::npos);
  // Large sources are checked for the rows of the run's steps only: 3 rows of `b` in 10.
  options.shuffle = false;
  options.global_batch = 10;
  auto data = MustOpen(options);
  EXPECT_FALSE((*data->CheckTokens({.last_step = 6, .most_bytes = 10})).has_value());
  EXPECT_FALSE(data->CheckTokens({.last_step = 7, .most_bytes = 10}).ok());
  EXPECT_FALSE(data->CheckTokens({.first_step = 7, .last_step = 7, .most_bytes = 10}).ok());
  EXPECT_TRUE(data->CheckTokens({.first_step = 8, .last_step = 8, .most_bytes = 10}).ok());
}

TEST_F(MixtureTest, PathsThatExistWin) {
  std::string odd = PutTokens("odd:0.7,b", 5, 41);
  EXPECT_TRUE(ParseSources(odd)->empty());
  EXPECT_TRUE(ParseSources("book.txt")->empty());
  EXPECT_TRUE(ParseSources("text")->empty());
  // The last colon begins the weight.
  std::vector<WeightedSource> sources = *ParseSources(odd.substr(0, odd.find(',')) + ":2,c:.5");
  EXPECT_EQ(sources[0].path, Path("odd:0.7"));
  EXPECT_EQ(sources[0].weight, 4);
  EXPECT_EQ(sources[1].path, "c");
  EXPECT_EQ(sources[1].weight, 1);
  EXPECT_EQ(AbsoluteSources("/a.bin:0.70,/b/:0.3"), "/a.bin:0.70,/b/:0.3");
  EXPECT_EQ(AbsoluteSources("a:1,text:2"), AbsolutePath("a") + ":1,text:2");
  EXPECT_EQ(AbsoluteSources(odd), odd);
  EXPECT_EQ(AbsoluteSources("text"), "text");
}

TEST_F(MixtureTest, MistakesNameTheSource) {
  DatasetOptions options = Mixed();
  auto refusal = [&](const std::string& source) {
    options.source = source;
    return Refusal(options);
  };
  EXPECT_EQ(refusal("a.bin,b.bin:1"),
            "`a.bin,b.bin:1` is neither a file nor a list of weighted sources: `a.bin` has no "
            "weight; expected PATH:WEIGHT,PATH:WEIGHT, such as a.bin:0.7,b/:0.3 [data]\n");
  EXPECT_EQ(refusal("a.bin:1,:2"),
            "`a.bin:1,:2`: the source before `:2` has no path; expected PATH:WEIGHT,PATH:WEIGHT, "
            "such as a.bin:0.7,b/:0.3 [data]\n");
  for (const char* weight : {"0", "-1", "1e3", "x", ".", "0.0000000001"})
    EXPECT_EQ(refusal(std::string("a.bin:1,b:") + weight),
              fmt::format("`a.bin:1,b:{0}`: the weight of `b` is `{0}`, expected a positive number "
                          "of at most 9 digits, such as 0.7 [data]\n",
                          weight));
  EXPECT_EQ(refusal("a:1000000,b:1"),
            "`a:1000000,b:1`: in whole numbers the weights are 1000000 : 1, expected a sum of at "
            "most 1,000,000; round them to fewer digits [data]\n");
  EXPECT_EQ(refusal("a:1,b:1,a:2"),
            "`a:1,b:1,a:2` names `a` twice; name it once, with the sum of its weights [data]\n");
  EXPECT_EQ(refusal(Path("a.bin") + ":1,synthetic:1"),
            "`a.bin:1,synthetic:1`: synthetic tokens have no source to mix; name files [data]\n");
  EXPECT_EQ(refusal(Path("a.bin") + ":1," + Path("none") + ":1"),
            "cannot read `none`: No such file or directory [file-read]\n");
  EXPECT_EQ(refusal(Path("a.bin") + ":1," + Put("t.txt", "some text") + ":1"),
            "`t.txt` has text, but `a.bin` has tokens; all sources of a mixture must be of one "
            "kind: `heddle tokenize` turns text into tokens [data]\n");
  EXPECT_EQ(refusal(Path("a.bin") + ":1," + PutTokens("s.bin", 0, 3) + ":1"),
            "`s.bin` has 3 tokens to read, but a sequence needs 5 with its last label [data]\n");
  EXPECT_EQ(refusal(Put("x.parquet", "PAR1")),
            "`x.parquet` is a Parquet file, which the Python package turns into tokens: `python -m "
            "heddle tokenize --tokenizer=FOLDER x.parquet -o tokens` [data]\n");
  // Next to other files it is not skipped.
  Put("p/a.txt", "some text");
  Put("p/x.parquet", "PAR1");
  EXPECT_NE(refusal(Path("p")).find("`p/x.parquet` is a Parquet file"), std::string::npos);
}

}  // namespace
}  // namespace heddle::run
