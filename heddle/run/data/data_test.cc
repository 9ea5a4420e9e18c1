#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "heddle/core/base/file.h"
#include "heddle/run/data/byte_tokenizer.h"
#include "heddle/run/data/dataset.h"
#include "heddle/run/data/permutation.h"

namespace heddle::run {
namespace {

struct Rows {
  std::vector<int64_t> tokens;
  std::vector<int64_t> labels;
};

// Returns the bytes of the values in memory.
template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::vector<uint16_t> Count16(size_t n) {
  std::vector<uint16_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), uint16_t{0});
  return tokens;
}

class DataTest : public ::testing::Test {
 protected:
  std::string Put(const std::string& name, const std::string& content) {
    std::string path = dir_.path() + "/" + name;
    size_t slash = path.rfind('/');
    EXPECT_TRUE(MakeDirectories(path.substr(0, slash)).ok());
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  DatasetOptions Options(const std::string& source) const {
    DatasetOptions options;
    options.source = source;
    options.vocab = 65536;
    options.seq_len = 4;
    options.global_batch = 2;
    options.seed = 7;
    options.shuffle = false;
    return options;
  }
  static std::unique_ptr<Dataset> MustOpen(const DatasetOptions& options) {
    Result<std::unique_ptr<Dataset>> data = Dataset::Open(options);
    EXPECT_TRUE(data.ok()) << Format(data.diagnostics());
    return data.ok() ? *std::move(data) : nullptr;
  }
  static Rows Read(const Dataset& data, const DatasetOptions& options, int64_t step,
                   DataSplit split = DataSplit::kTrain) {
    auto size = static_cast<size_t>(options.global_batch * options.seq_len);
    Rows rows{std::vector<int64_t>(size), std::vector<int64_t>(size)};
    Status read = data.Read(split, step, 0, options.global_batch, rows.tokens, rows.labels);
    EXPECT_TRUE(read.ok()) << Format(read.diagnostics());
    return rows;
  }
  // Returns the error of opening the data or of reading the first step, with paths relative to the
  // folder.
  std::string Refusal(const DatasetOptions& options) const {
    Result<std::unique_ptr<Dataset>> data = Dataset::Open(options);
    Diagnostics said = data.diagnostics();
    if (data.ok()) {
      std::vector<int64_t> room(static_cast<size_t>(options.global_batch * options.seq_len));
      std::vector<int64_t> labels = room;
      said =
          (*data)->Read(DataSplit::kTrain, 1, 0, options.global_batch, room, labels).diagnostics();
    }
    std::string text = Format(said);
    for (size_t at; (at = text.find(dir_.path() + "/")) != std::string::npos;)
      text.erase(at, dir_.path().size() + 1);
    return text;
  }

  TempDir dir_;
};

using Tokens = std::vector<int64_t>;

TEST_F(DataTest, SyntheticTokensAreTheFormula) {
  DatasetOptions options = Options("synthetic");
  options.vocab = 1000;
  options.seed = 42;
  auto data = MustOpen(options);
  Rows rows{Tokens(8), Tokens(8)};
  ASSERT_TRUE(data->Read(DataSplit::kTrain, 3, 5, 2, rows.tokens, rows.labels).ok());
  // splitmix64 of 42 * 2^40 + 3 * 2^32 + 5 * 2^16 + position, modulo 1000, computed by another
  // program.
  EXPECT_EQ(rows.tokens, (Tokens{191, 490, 744, 812, 876, 818, 720, 38}));
  EXPECT_EQ(rows.labels, (Tokens{490, 744, 812, 624, 818, 720, 38, 948}));
  Rows other = Read(*data, options, 3, DataSplit::kHeldOut);
  EXPECT_NE(other.tokens, Read(*data, options, 3).tokens);
}

TEST_F(DataTest, SyntheticDocumentsEndWithEvery32ndToken) {
  DatasetOptions options = Options("synthetic");
  options.seq_len = 100;
  Rows whole = Read(*MustOpen(options), options, 1);
  options.document_boundaries = true;
  auto data = MustOpen(options);
  Rows rows = Read(*data, options, 1);
  EXPECT_EQ(rows.tokens, whole.tokens);
  int64_t ends = 0;
  for (size_t i = 0; i < rows.tokens.size(); ++i) {
    bool end = rows.tokens[i] % 32 == 0;
    EXPECT_EQ(rows.labels[i], end ? kDocumentEndLabel : whole.labels[i]);
    ends += end;
  }
  EXPECT_GT(ends, 0);
  options.document_end = whole.tokens[50];
  auto other = MustOpen(options);
  EXPECT_EQ(Read(*other, options, 1).labels[50], kDocumentEndLabel);
  EXPECT_NE(other->Fingerprint(), data->Fingerprint());
}

TEST_F(DataTest, RowsDoNotDependOnHowTheyAreRead) {
  DatasetOptions options = Options(Put("a.bin", Bytes(Count16(1000))));
  options.shuffle = true;
  options.global_batch = 8;
  auto data = MustOpen(options);
  auto again = MustOpen(options);
  Rows all = Read(*data, options, 50);
  for (int64_t row = 7; row >= 0; --row) {
    Rows one{Tokens(4), Tokens(4)};
    ASSERT_TRUE(again->Read(DataSplit::kTrain, 50, row, 1, one.tokens, one.labels).ok());
    EXPECT_TRUE(std::equal(one.tokens.begin(), one.tokens.end(), all.tokens.begin() + row * 4));
  }
}

TEST_F(DataTest, EveryEpochReadsEverySequenceOnceInAnotherOrder) {
  // 24 sequences of 4 tokens, and the last label.
  DatasetOptions options = Options(Put("a.bin", Bytes(Count16(97))));
  options.shuffle = true;
  auto data = MustOpen(options);
  std::vector<Tokens> epochs;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    Tokens firsts;
    for (int64_t step = 1; step <= 12; ++step) {
      Rows rows = Read(*data, options, epoch * 12 + step);
      for (size_t i = 0; i < rows.tokens.size(); ++i) EXPECT_EQ(rows.labels[i], rows.tokens[i] + 1);
      firsts.insert(firsts.end(), {rows.tokens[0], rows.tokens[4]});
    }
    std::set<int64_t> distinct(firsts.begin(), firsts.end());
    EXPECT_EQ(distinct.size(), 24u);
    EXPECT_EQ(*distinct.rbegin(), 92);
    EXPECT_FALSE(std::ranges::is_sorted(firsts));
    epochs.push_back(firsts);
  }
  EXPECT_NE(epochs[0], epochs[1]);
}

TEST_F(DataTest, PermutationsAreOneToOne) {
  for (uint64_t size : {1, 2, 3, 4, 5, 17, 64, 65, 1000, 4097}) {
    Permutation permutation(size, 99);
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < size; ++i) {
      EXPECT_LT(permutation(i), size);
      seen.insert(permutation(i));
    }
    EXPECT_EQ(seen.size(), size);
  }
  // The largest size is as fast.
  Permutation huge(uint64_t{1} << 62, 1);
  EXPECT_LT(huge((uint64_t{1} << 62) - 1), uint64_t{1} << 62);
}

TEST_F(DataTest, HeldOutTokensAreTheLastAndNobodyElses) {
  DatasetOptions options = Options(Put("a.bin", Bytes(Count16(100))));
  options.held_out = 0.2;
  auto data = MustOpen(options);
  EXPECT_EQ(data->Describe(), "nanoGPT tokens: 80 tokens, 19 sequences of 4, 4 held out");
  EXPECT_EQ(Read(*data, options, 1, DataSplit::kHeldOut).tokens,
            (Tokens{80, 81, 82, 83, 84, 85, 86, 87}));
  // Starts over after the fourth sequence.
  EXPECT_EQ(Read(*data, options, 3, DataSplit::kHeldOut).tokens,
            (Tokens{80, 81, 82, 83, 84, 85, 86, 87}));
  for (int64_t step = 1; step <= 30; ++step) {
    Rows rows = Read(*data, options, step);
    EXPECT_LT(*std::ranges::max_element(rows.labels), 80);
  }
}

TEST_F(DataTest, TextIsItsBytes) {
  DatasetOptions options = Options(Put("a.txt", "Grüße\n"));
  options.vocab = 256;
  auto data = MustOpen(options);
  Rows rows = Read(*data, options, 1);
  // Eight bytes, and the end of the document, which is the last label.
  EXPECT_EQ(rows.tokens, (Tokens{'G', 'r', 0xC3, 0xBC, 0xC3, 0x9F, 'e', '\n'}));
  EXPECT_EQ(rows.labels.back(), 0);
  EXPECT_TRUE(data->IsText());
  EXPECT_EQ(TokensToText(BytesToTokens("Grüße\n")), "Grüße\n");
  EXPECT_EQ(TokensToText(Tokens{'a', 0xC3, 'b', 300, 27, 0xC3, 0xBC, 0, 'c'}),
            "a\uFFFDb\uFFFD\uFFFDü");
}

TEST_F(DataTest, FoldersAreReadInOrderWithDocumentsApart) {
  Put("t/b/two.txt", "DEFG");
  Put("t/a.txt", "ABC");
  Put("t/.hidden", "xxxxxxxxxxx");
  Put("t/picture", "\xFF\xFE");
  DatasetOptions options = Options(dir_.path() + "/t");
  options.global_batch = 1;
  options.seq_len = 7;
  options.document_boundaries = true;
  auto data = MustOpen(options);
  Rows rows = Read(*data, options, 1);
  EXPECT_EQ(rows.tokens, (Tokens{'A', 'B', 'C', 0, 'D', 'E', 'F'}));
  EXPECT_EQ(rows.labels, (Tokens{'B', 'C', 0, -101, 'E', 'F', 'G'}));
  EXPECT_EQ(data->Describe(), "text: 9 tokens, 1 sequence of 7; 1 file is not text (skipped)");
}

TEST_F(DataTest, TheProgramCarriesItsOwnSources) {
  DatasetOptions options = Options("text");
  options.vocab = 256;
  options.seq_len = 1000;
  options.global_batch = 1;
  options.held_out = 0.05;
  auto data = MustOpen(options);
  std::string all;
  for (int64_t step = 1; step <= 900; ++step) {
    for (int64_t token : Read(*data, options, step).tokens) {
      ASSERT_TRUE(token >= 0 && token < kByteVocab) << token;
      all += static_cast<char>(token);
    }
  }
  // The first file, and the boundary between the first two.
  EXPECT_TRUE(all.starts_with("# Contributing"));
  EXPECT_NE(all.find(std::string("\n\0# Heddle", 10)), std::string::npos);
  EXPECT_NE(all.find("class JobRun"), std::string::npos);
}

TEST_F(DataTest, LlmcFilesHaveAHeader) {
  std::vector<int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = 9;
  std::vector<uint16_t> tokens{50256, 1, 2, 3, 50256, 4, 5, 6, 7};
  DatasetOptions options = Options(Put("x_train_1.bin", Bytes(header) + Bytes(tokens)));
  options.document_boundaries = true;
  auto data = MustOpen(options);
  EXPECT_EQ(Read(*data, options, 1).tokens, (Tokens{50256, 1, 2, 3, 50256, 4, 5, 6}));
  EXPECT_EQ(Read(*data, options, 1).labels, (Tokens{-101, 2, 3, 50256, -101, 5, 6, 7}));

  // Tokens of Llama 3 have 32 bits.
  header[0] = 20240801;
  header[1] = 7;
  std::vector<uint32_t> wide{128000, 1, 2, 3, 128000, 4, 5, 6, 127999};
  options.source = Put("wide.bin", Bytes(header) + Bytes(wide));
  options.vocab = 128256;
  EXPECT_EQ(Read(*MustOpen(options), options, 1).labels,
            (Tokens{-101, 2, 3, 128000, -101, 5, 6, 127999}));

  header[2] = 10;
  EXPECT_EQ(
      Refusal(Options(Put("short.bin", Bytes(header) + Bytes(wide)))),
      "`short.bin` has 36 bytes of tokens, but its header specifies 10 tokens of 4 bytes [data]\n");
  header[1] = 8;
  EXPECT_EQ(Refusal(Options(Put("new.bin", Bytes(header)))),
            "`new.bin` has version 8 of llm.c's format, expected 7 [data]\n");
  EXPECT_EQ(Refusal(Options(Put("cut.bin", Bytes(header).substr(0, 100)))),
            "`cut.bin` has 100 bytes, but the header of llm.c's files has 1024 [data]\n");
}

// A Megatron-LM index for sequences of these lengths.
struct MegatronIndex {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  uint64_t version = 1;
  uint8_t type = 8;
  std::vector<int32_t> lengths;
  std::vector<int64_t> begins;
  std::vector<int64_t> documents;

  std::string Text() const {
    std::vector<uint64_t> counts{lengths.size(), documents.size()};
    return magic + Bytes(std::vector{version}) + Bytes(std::vector{type}) + Bytes(counts) +
           Bytes(lengths) + Bytes(begins) + Bytes(documents);
  }
};

TEST_F(DataTest, MegatronFilesListTheirDocuments) {
  // Documents of 2 + 1, 0 and 6 tokens.
  MegatronIndex index{.lengths = {2, 1, 6}, .begins = {0, 4, 6}, .documents = {0, 2, 2, 3}};
  std::string bin = Put("m_text_document.bin", Bytes(Count16(9)));
  std::string idx = Put("m_text_document.idx", index.Text());
  DatasetOptions options = Options(bin);
  options.document_boundaries = true;
  for (const std::string& path : {bin, idx, idx.substr(0, idx.size() - 4)}) {
    options.source = path;
    auto data = MustOpen(options);
    EXPECT_EQ(Read(*data, options, 1).tokens, (Tokens{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(Read(*data, options, 1).labels, (Tokens{1, 2, -101, 4, 5, 6, 7, 8}));
    EXPECT_EQ(data->Describe(), "Megatron-LM tokens: 9 tokens, 2 sequences of 4");
  }
  auto refusal = [&](const MegatronIndex& other, size_t cut = 0) {
    std::string text = other.Text();
    Put("m_text_document.idx", text.substr(0, text.size() - cut));
    return Refusal(options);
  };
  EXPECT_EQ(refusal(index, 1),
            "`m_text_document.idx` ends after 101 bytes, before its 3 sequences and 3 documents "
            "[data]\n");
  EXPECT_EQ(refusal(index, 80),
            "`m_text_document.idx` ends in the middle of its header, after 22 bytes [data]\n");
  MegatronIndex bad = index;
  bad.magic[0] = 'X';
  EXPECT_EQ(refusal(bad),
            "`m_text_document.idx` is not an index of Megatron-LM: it does not begin with MMIDIDX "
            "[data]\n");
  bad = index;
  bad.version = 2;
  EXPECT_EQ(refusal(bad), "`m_text_document.idx` has version 2, expected 1 [data]\n");
  bad = index;
  bad.type = 6;
  EXPECT_EQ(refusal(bad),
            "`m_text_document.idx` specifies token type 6, expected an integer type: 1 to 5, or 8 "
            "[data]\n");
  bad = index;
  bad.begins[1] = 6;
  EXPECT_EQ(
      refusal(bad),
      "`m_text_document.idx`: sequence 1 begins at byte 6 with 1 tokens, but the previous one "
      "ends at 4 [data]\n");
  bad = index;
  bad.lengths[2] = 7;
  EXPECT_EQ(
      refusal(bad),
      "`m_text_document.idx`: sequence 2 ends at byte 20, but the tokens have 18 bytes [data]\n");
  bad = index;
  bad.lengths[2] = 5;
  EXPECT_EQ(
      refusal(bad),
      "`m_text_document.idx`: its sequences end at byte 16, but the tokens have 18 bytes [data]\n");
  bad = index;
  bad.documents[1] = 4;
  EXPECT_EQ(refusal(bad),
            "`m_text_document.idx`: document 1 begins with sequence 4, expected 0 to 3 [data]\n");
  // Counts whose byte sizes overflow.
  std::string huge = index.Text();
  std::fill_n(huge.begin() + 18, 16, '\xFF');
  Put("m_text_document.idx", huge);
  EXPECT_NE(Refusal(options).find("before its 18446744073709551615 sequences"), std::string::npos);
}

std::string Safetensors(const std::string& header, const std::string& data) {
  return Bytes(std::vector<uint64_t>{header.size()}) + header + data;
}

TEST_F(DataTest, SafetensorsHoldOneListOfIntegers) {
  std::vector<int32_t> numbers{5, 6, 7, 8, 9, 10, 11, 12, 13};
  std::string data = Bytes(std::vector<float>{1}) + Bytes(numbers);
  std::string floats = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)";
  std::string nine = R"("ids":{"dtype":"I32","shape":[9],"data_offsets":[4,40]}})";
  std::string four = R"("a":{"dtype":"I32","shape":[4],"data_offsets":[4,20]},)";
  std::string five = R"(":{"dtype":"I32","shape":[5],"data_offsets":[20,40]}})";
  DatasetOptions options = Options(Put("t.safetensors", Safetensors(floats + nine, data)));
  auto dataset = MustOpen(options);
  EXPECT_EQ(Read(*dataset, options, 1).labels, (Tokens{6, 7, 8, 9, 10, 11, 12, 13}));
  EXPECT_EQ(dataset->Describe(), "safetensors tokens: 9 tokens, 2 sequences of 4");
  options.vocab = 13;
  size_t place = 8 + floats.size() + nine.size() + 36;
  EXPECT_EQ(
      Refusal(options),
      fmt::format("`t.safetensors`: the token at byte {} is 13, but the vocabulary has 13 [data]\n",
                  place));
  options.source = Put("two.safetensors", Safetensors(floats + four + "\"b" + five, data));
  EXPECT_EQ(Refusal(options),
            "`two.safetensors` has 2 lists of integers among its 3 tensors; keep one list, or "
            "name it `tokens` [data]\n");
  options.source = Put("named.safetensors", Safetensors(floats + four + "\"tokens" + five, data));
  options.vocab = 14;
  EXPECT_EQ(Read(*MustOpen(options), options, 1).tokens, (Tokens{9, 10, 11, 12, 9, 10, 11, 12}));
  EXPECT_NE(Refusal(Options(Put("cut.safetensors", "abc"))).find("[file-read]"), std::string::npos);
}

// Nine tokens in two documents, and which of them count. Empty parts are left out.
std::string MaskedTokens(const std::vector<uint8_t>& mask, const std::vector<int32_t>& lengths) {
  std::vector<int32_t> tokens{5, 6, 7, 8, 9, 10, 11, 12, 13};
  std::string data = Bytes(tokens);
  std::string header = R"({"tokens":{"dtype":"I32","shape":[9],"data_offsets":[0,36]})";
  auto add = [&](const std::string& name, const std::string& type, size_t count,
                 const std::string& bytes) {
    header += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name,
                          type, count, data.size(), data.size() + bytes.size());
    data += bytes;
  };
  if (!lengths.empty()) add("document_lengths", "I32", lengths.size(), Bytes(lengths));
  if (!mask.empty()) add("loss_mask", "U8", mask.size(), Bytes(mask));
  return Safetensors(header + "}", data);
}

TEST_F(DataTest, AMaskSelectsTheLabelsThatCount) {
  const std::vector<uint8_t> mask{0, 0, 1, 1, 0, 0, 0, 0, 1};
  DatasetOptions options = Options(Put("m.safetensors", MaskedTokens(mask, {4, 5})));
  auto data = MustOpen(options);
  EXPECT_EQ(data->Describe(), "safetensors tokens: 9 tokens, 2 sequences of 4, with a loss mask");
  // A label counts if the mask of the token that it predicts is 1.
  Rows rows = Read(*data, options, 1);
  EXPECT_EQ(rows.tokens, (Tokens{5, 6, 7, 8, 9, 10, 11, 12}));
  EXPECT_EQ(rows.labels, (Tokens{-100, 7, 8, -100, -100, -100, -100, 13}));
  options.document_boundaries = true;
  EXPECT_EQ(Read(*MustOpen(options), options, 1).labels,
            (Tokens{-100, 7, 8, -101, -100, -100, -100, 13}));
  options.document_boundaries = false;
  EXPECT_TRUE(*HasLossMask(options.source, ""));
  DatasetOptions plain = Options(Put("p.safetensors", MaskedTokens({}, {})));
  EXPECT_FALSE(*HasLossMask(plain.source, ""));
  EXPECT_EQ(Read(*MustOpen(plain), plain, 1).labels, (Tokens{6, 7, 8, 9, 10, 11, 12, 13}));
  // Mask and lengths belong to the data's identity.
  DatasetOptions other =
      Options(Put("o.safetensors", MaskedTokens({0, 1, 1, 1, 0, 0, 0, 0, 1}, {4, 5})));
  DatasetOptions cut = Options(Put("c.safetensors", MaskedTokens(mask, {3, 6})));
  std::set<std::string> prints;
  for (const DatasetOptions& each : {options, plain, other, cut})
    prints.insert(MustOpen(each)->Fingerprint());
  EXPECT_EQ(prints.size(), 4u);
}

TEST_F(DataTest, DamagedMasksAreNamed) {
  auto refusal = [&](const std::vector<uint8_t>& mask, const std::vector<int32_t>& lengths) {
    return Refusal(Options(Put("m.safetensors", MaskedTokens(mask, lengths))));
  };
  EXPECT_EQ(refusal({0, 1, 1}, {}),
            "`m.safetensors`: `loss_mask` has the shape [3], but `tokens` has [9] [data]\n");
  const std::string file = MaskedTokens({1, 1, 1, 1, 1, 2, 1, 1, 1}, {});
  EXPECT_EQ(refusal({1, 1, 1, 1, 1, 2, 1, 1, 1}, {}),
            fmt::format("`m.safetensors`: the loss mask at byte {} is 2, expected 0 or 1 [data]\n",
                        file.size() - 4));
  EXPECT_EQ(refusal({}, {4, 6}),
            "`m.safetensors`: document 1 has 6 tokens, but 5 of all 9 follow the previous one "
            "[data]\n");
  EXPECT_EQ(refusal({}, {4, -1}),
            "`m.safetensors`: document 1 has -1 tokens, but 5 of all 9 follow the previous one "
            "[data]\n");
  EXPECT_EQ(refusal({}, {4, 4}),
            "`m.safetensors`: its documents have 8 tokens together, but the file has 9 [data]\n");
  // Before training, a run checks the whole mask.
  std::vector<uint8_t> late(9, 1);
  late[8] = 255;
  DatasetOptions options = Options(Put("late.safetensors", MaskedTokens(late, {})));
  Result<std::optional<int64_t>> found = MustOpen(options)->CheckTokens({});
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.diagnostics()[0].message.find("is 255, expected 0 or 1"), std::string::npos);
  std::string floats = MaskedTokens(std::vector<uint8_t>(9, 1), {});
  floats.replace(floats.find("\"U8\""), 4, "\"I8\"");
  EXPECT_EQ(Refusal(Options(Put("i8.safetensors", floats))),
            "`i8.safetensors`: `loss_mask` is i8, expected u8 or bool [data]\n");
}

TEST_F(DataTest, FilesForValidationAreHeldOut) {
  Put("n/train.bin", Bytes(Count16(20)));
  Put("n/val.bin", Bytes(std::vector<uint16_t>{100, 101, 102, 103, 104, 105}));
  DatasetOptions options = Options(dir_.path() + "/n");
  options.held_out = 0.5;
  auto data = MustOpen(options);
  EXPECT_EQ(data->Describe(), "nanoGPT tokens: 20 tokens, 4 sequences of 4, 1 held out");
  EXPECT_EQ(Read(*data, options, 1, DataSplit::kHeldOut).tokens,
            (Tokens{100, 101, 102, 103, 100, 101, 102, 103}));
}

TEST_F(DataTest, AFolderOfOneKindOnly) {
  Put("onlyval/val.bin", Bytes(Count16(20)));
  EXPECT_EQ(Refusal(Options(dir_.path() + "/onlyval")),
            "`onlyval` has only files for validation (their names have the word val, valid, "
            "validation or test); add files to train on, or name one file instead [data]\n");
  // A file that is named directly is trained on, whatever its name.
  EXPECT_EQ(Refusal(Options(dir_.path() + "/onlyval/val.bin")), "");
  Put("mix/a.bin", Bytes(Count16(20)));
  Put("mix/notes.pkl", "\xFF");
  Put("mix/_SUCCESS", "");
  EXPECT_EQ(MustOpen(Options(dir_.path() + "/mix"))->Describe(),
            "nanoGPT tokens: 20 tokens, 4 sequences of 4; 1 file is not text (skipped)");
  Put("mix/b.txt", "hello");
  EXPECT_EQ(
      Refusal(Options(dir_.path() + "/mix")),
      "`mix` has token files (`mix/a.bin`) and text (`mix/b.txt`); all files of a folder must "
      "be of one kind: move one kind away, or name one file instead [data]\n");
}

TEST_F(DataTest, FoldersMayHaveMoreFilesThanTheSoftLimit) {
  for (int i = 0; i < 100; ++i) Put(fmt::format("many/{:03}.txt", i), "ab");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 40;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::string found = MustOpen(Options(dir_.path() + "/many"))->Describe();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(found, "text: 300 tokens, 74 sequences of 4");
}

TEST_F(DataTest, PipesAndLinksToNothingAreRefused) {
  Put("p/a.bin", Bytes(Count16(20)));
  ASSERT_EQ(::mkfifo((dir_.path() + "/p/b.bin").c_str(), 0666), 0);
  EXPECT_EQ(Refusal(Options(dir_.path() + "/p")), "`p/b.bin` is not a regular file [file-read]\n");
  EXPECT_EQ(Refusal(Options(dir_.path() + "/p/b.bin")),
            "cannot read `p/b.bin`: it is a FIFO, expected a regular file [file-read]\n");
  ASSERT_EQ(::mkfifo((dir_.path() + "/p/c.safetensors").c_str(), 0666), 0);
  // Opening a pipe must not block forever.
  ::alarm(60);
  EXPECT_NE(Refusal(Options(dir_.path() + "/p/c.safetensors")).find("expected a regular file"),
            std::string::npos);
  ::alarm(0);
  Put("l/a.bin", Bytes(Count16(20)));
  ASSERT_EQ(::symlink("nothing", (dir_.path() + "/l/b.bin").c_str()), 0);
  EXPECT_EQ(Refusal(Options(dir_.path() + "/l")),
            "cannot read `l/b.bin`: No such file or directory [file-read]\n");
}

TEST_F(DataTest, TokensAreComparedWithTheVocabularyBeforeTraining) {
  std::vector<uint16_t> tokens = Count16(1001);
  tokens[997] = 5000;
  DatasetOptions options = Options(Put("t/a.bin", Bytes(tokens)));
  options.vocab = 1001;
  auto said = [](const DatasetOptions& opened, const TokenCheck& check) {
    Result<std::optional<int64_t>> found = MustOpen(opened)->CheckTokens(check);
    return found.ok() ? "" : found.diagnostics()[0].message;
  };
  std::string bad = "`" + options.source +
                    "`: the token at byte 1994 is 5000, but the vocabulary has 1,001; the largest "
                    "token of the file is 5000, so --model.vocab_size must be at least 5001";
  EXPECT_EQ(said(options, {}), bad);
  // Only the last of four ranks has that token in its part.
  EXPECT_EQ(said(options, {.part = 2, .parts = 4}), "");
  EXPECT_EQ(said(options, {.part = 3, .parts = 4}), bad);
  // For larger data, the check covers the rows of the run's steps only: step 125 has sequences 248
  // and 249.
  EXPECT_EQ(said(options, {.last_step = 124, .most_bytes = 100}), "");
  EXPECT_NE(said(options, {.first_step = 120, .last_step = 125, .most_bytes = 100}), "");
  EXPECT_EQ(said(options, {.part = 1, .parts = 2, .first_step = 125, .last_step = 126}), bad);
  EXPECT_FALSE((*MustOpen(options)->CheckTokens({.last_step = 3, .most_bytes = 100})).has_value());
  options.vocab = 5001;
  EXPECT_EQ(**MustOpen(options)->CheckTokens({}), 5000);
  // Tokens after the last sequence are never read.
  options.seq_len = 100;
  tokens[997] = 997;
  tokens.resize(1050, 6000);
  options.source = Put("t/tail.bin", Bytes(tokens));
  EXPECT_EQ(said(options, {}), "");
  // Validation files are checked if the run validates.
  Put("v/train.bin", Bytes(Count16(500)));
  Put("v/val.bin", Bytes(std::vector<uint16_t>(200, 7000)));
  options.source = dir_.path() + "/v";
  EXPECT_EQ(said(options, {}), "");
  options.held_out = 0.05;
  EXPECT_NE(said(options, {}).find("v/val.bin`: the token at byte 0 is 7000"), std::string::npos);
}

TEST_F(DataTest, MistakesAreNamed) {
  EXPECT_EQ(Refusal(Options(dir_.path() + "/none")),
            "cannot read `none`: No such file or directory [file-read]\n");
  EXPECT_EQ(Refusal(Options(Put("empty.txt", ""))), "`empty.txt` is empty [data]\n");
  EXPECT_EQ(
      Refusal(Options(Put("short.txt", "abc"))),
      "`short.txt` has 4 tokens to read, but a sequence needs 5 with its last label [data]\n");
  EXPECT_EQ(Refusal(Options(Put("odd.bin", "abc"))),
            "`odd.bin` has 3 bytes, expected a multiple of 2, the size of a token [data]\n");
  EXPECT_EQ(Refusal(Options(Put("latin.txt",
                                "Gr\xFC\xDF"
                                "e, all"))),
            "`latin.txt` is not text: byte 2 is not UTF-8; files of tokens are named .bin, .idx or "
            ".safetensors "
            "[data]\n");
  EXPECT_EQ(Refusal(Options(Put("nul.txt", std::string("ab\0cdefghij", 11)))),
            "`nul.txt` is not text: byte 2 is NUL, which ends documents [data]\n");
  DatasetOptions options =
      Options(Put("big.bin", Bytes(std::vector<uint16_t>{1, 2, 3, 4, 5, 6, 2048, 8, 9})));
  options.vocab = 2048;
  EXPECT_EQ(Refusal(options),
            "`big.bin`: the token at byte 12 is 2048, but the vocabulary has 2,048 [data]\n");
  options.document_boundaries = true;
  EXPECT_EQ(Refusal(options),
            "`big.bin` does not state which token ends a document; give it with "
            "--training.document_end [data]\n");
  options.document_end = 2;
  options.vocab = 2049;
  EXPECT_EQ(Refusal(options), "");
  EXPECT_EQ(Read(*MustOpen(options), options, 1).labels, (Tokens{2, -101, 4, 5, 6, 2048, 8, 9}));
  options = Options("text");
  options.vocab = 255;
  EXPECT_EQ(Refusal(options),
            "the vocabulary has 255 tokens, but text needs 256, one for each byte [data]\n");
  Put("mixed/a.bin", Bytes(Count16(4)));
  std::vector<int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  Put("mixed/b.bin", Bytes(header));
  EXPECT_EQ(Refusal(Options(dir_.path() + "/mixed")),
            "`mixed/b.bin` has llm.c tokens, but files before it have nanoGPT tokens [data]\n");
  Put("pictures/a.png", "\xFF");
  EXPECT_EQ(Refusal(Options(dir_.path() + "/pictures")),
            "`pictures` is empty: none of its files is text, 1 skipped [data]\n");
  options = Options("text");
  options.held_out = 1;
  EXPECT_EQ(Refusal(options),
            "the share of held-out tokens is 1, expected at least 0 and less than 1 [data]\n");
  options.held_out = 0;
  options.seq_len = 0;
  EXPECT_EQ(Refusal(options), "the length of sequences is 0, expected 1 or more [data]\n");
}

TEST_F(DataTest, AFileThatShrinksIsNoCrash) {
  std::string path = Put("a.bin", Bytes(Count16(50000)));
  DatasetOptions options = Options(path);
  auto data = MustOpen(options);
  ASSERT_EQ(::truncate(path.c_str(), 10), 0);
  Rows rows{Tokens(8), Tokens(8)};
  Status read = data->Read(DataSplit::kTrain, 5000, 0, 2, rows.tokens, rows.labels);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.diagnostics()[0].message,
            "`" + path + "` has 10 bytes, and had 100000 when it was opened");
}

TEST_F(DataTest, FingerprintsTellDataApart) {
  std::string big(3 << 20, 'a');
  DatasetOptions options = Options(Put("a.txt", big));
  std::string first = MustOpen(options)->Fingerprint();
  EXPECT_EQ(MustOpen(options)->Fingerprint(), first);
  // The path is not part of the fingerprint.
  DatasetOptions elsewhere = Options(Put("b.txt", big));
  EXPECT_EQ(MustOpen(elsewhere)->Fingerprint(), first);
  big.back() = 'b';
  EXPECT_NE(MustOpen(Options(Put("c.txt", big)))->Fingerprint(), first);
  for (auto change :
       {+[](DatasetOptions& o) { o.seq_len = 5; }, +[](DatasetOptions& o) { o.global_batch = 3; },
        +[](DatasetOptions& o) { o.shuffle = true; }, +[](DatasetOptions& o) { o.held_out = 0.1; },
        +[](DatasetOptions& o) { o.document_boundaries = true; }}) {
    DatasetOptions other = options;
    change(other);
    EXPECT_NE(MustOpen(other)->Fingerprint(), first);
  }
}

}  // namespace
}  // namespace heddle::run
