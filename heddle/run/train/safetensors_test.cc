#include "heddle/run/train/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include "heddle/core/base/file.h"
#include "heddle/run/models/test/inputs.h"
#include "heddle/run/runtime/shards.h"

namespace heddle::run {
namespace {

class SafetensorsTest : public testing::Test {
 protected:
  std::string Path() const { return folder_.path() + "/file.safetensors"; }

  // Returns the error of a file with this header and `data_bytes` bytes after it.
  std::string Said(std::string_view header, size_t data_bytes, int64_t claimed = -1) const {
    uint64_t length = claimed < 0 ? header.size() : static_cast<uint64_t>(claimed);
    std::string content;
    for (int i = 0; i < 8; ++i) content += static_cast<char>(length >> (8 * i) & 255);
    content += header;
    content.append(data_bytes, '\1');
    return SaidOf(content);
  }
  std::string SaidOf(std::string_view content) const {
    EXPECT_TRUE(WriteFile(Path(), content).ok());
    Result<SafetensorsFile> file = SafetensorsFile::Open(Path());
    if (file.ok()) return "";
    EXPECT_EQ(file.diagnostics()[0].kind, Diag::kFileRead);
    EXPECT_TRUE(file.diagnostics()[0].file.starts_with(Path()));
    return file.diagnostics()[0].message;
  }

  TempDir folder_;
};

TEST_F(SafetensorsTest, WhatIsWrittenIsRead) {
  std::vector<std::pair<std::string, at::Tensor>> tensors = {
      {"b", at::arange(6, at::kFloat).view({2, 3})},
      {"a", at::arange(5).t()},
      {"empty", at::zeros({0, 4}, at::kBFloat16)},
      {"one", at::zeros({}, at::kDouble)},
      {"turned", at::arange(6, at::kFloat).view({2, 3}).t()}};
  ASSERT_TRUE(WriteFile(Path(), *FormatSafetensors(tensors)).ok());
  SafetensorsFile file = *SafetensorsFile::Open(Path());
  EXPECT_EQ(file.entries().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    ASSERT_NE(file.Find(name), nullptr) << name;
    EXPECT_TRUE(SameBits(*ReadTensor(file, *file.Find(name)), tensor)) << name;
  }
  EXPECT_EQ(file.Find("c"), nullptr);
}

TEST_F(SafetensorsTest, WhatCannotBeWrittenIsRefused) {
  EXPECT_EQ(FormatSafetensors({{"a", at::zeros({1}, at::kComplexFloat)}}).diagnostics()[0].message,
            "`a` is c64, which the safetensors format does not support");
  at::Tensor one = at::zeros({1});
  EXPECT_FALSE(FormatSafetensors({{"a", one}, {"a", one}}).ok());
}

TEST_F(SafetensorsTest, LengthsThatAreLies) {
  EXPECT_EQ(SaidOf("abc"),
            "has 3 bytes; a safetensors file begins with 8 bytes for the length of its header");
  EXPECT_EQ(Said("{}", 0, 3), "specifies a header of 3 bytes, but has 2 after byte 8");
  EXPECT_EQ(Said("{}", 0, INT64_MAX),
            "specifies a header of 9223372036854775807 bytes, but has 2 after byte 8");
  EXPECT_EQ(SaidOf(std::string(8, '\xff') + "{}"),
            "specifies a header of 18446744073709551615 bytes, but has 2 after byte 8");
  EXPECT_EQ(Said("{}", 0), "");
  EXPECT_EQ(Said("{}   ", 0), "");
  EXPECT_EQ(SafetensorsFile::Open(folder_.path()).diagnostics()[0].message,
            "cannot open: Is a directory");
  std::string pipe = folder_.path() + "/pipe.safetensors";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0666), 0);
  // Opening the pipe must not wait for a writer.
  ::alarm(60);
  EXPECT_EQ(SafetensorsFile::Open(pipe).diagnostics()[0].message,
            "cannot open: it is a FIFO, expected a regular file");
  ::alarm(0);
  EXPECT_EQ(SafetensorsFile::Open(folder_.path() + "/none").diagnostics()[0].message,
            "cannot open: No such file or directory");
}

TEST_F(SafetensorsTest, HeadersThatAreNone) {
  EXPECT_EQ(Said("", 0), "not JSON: expected a value");
  EXPECT_EQ(Said("{\"a\":", 0), "not JSON: expected a value");
  EXPECT_EQ(Said("{} {}", 0), "not JSON: there is more text after the value");
  EXPECT_EQ(Said("{\"a\xff\":1}", 0), "not JSON: a text is not UTF-8");
  EXPECT_EQ(Said("[1]", 0), "the file is a list, expected an object");
  EXPECT_EQ(Said(std::string(100000, '['), 0),
            "not JSON: values are nested more than 1000 levels deep");
  EXPECT_EQ(Said("{\"a\":" + std::string(1000, '[') + std::string(1000, ']') + "}", 0),
            "`a` is a list, expected an object");
  EXPECT_EQ(Said("{\"__metadata__\":{\"a\":1}}", 0), "`__metadata__.a` is 1, expected a text");
  EXPECT_EQ(Said("{\"__metadata__\":{\"a\":\"b\"}}", 0), "");
}

TEST_F(SafetensorsTest, TensorsThatAreLies) {
  auto one = [&](std::string_view what, size_t bytes = 8) {
    return Said(fmt::format("{{\"w\":{}}}", what), bytes);
  };
  EXPECT_EQ(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), "");
  EXPECT_EQ(one("3"), "`w` is 3, expected an object");
  EXPECT_EQ(one(R"({"shape":[2],"data_offsets":[0,8]})"), "`w.dtype` is missing");
  EXPECT_EQ(one(R"({"dtype":"F33","shape":[2],"data_offsets":[0,8]})"),
            "`w.dtype` is \"F33\", expected one of `F64`, `F32`, `BF16`, `F16`, `I64`, `I32`, "
            "`I16`, `I8`, `U8`, `BOOL`");
  EXPECT_EQ(one(R"({"dtype":"F32","data_offsets":[0,8]})"), "`w.shape` is missing");
  EXPECT_EQ(one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"),
            "`w.shape[0]` is -2, expected a whole number of at least 0");
  EXPECT_EQ(one(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"),
            "`w.shape[0]` is 2.0, expected a whole number of at least 0");
  EXPECT_EQ(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,9]})"),
            "`w.data_offsets` has 3 numbers, expected 2");
  EXPECT_EQ(one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"),
            "`w` has bytes 8 to 0 of 8");
  EXPECT_EQ(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,12]})"),
            "`w` has bytes 0 to 12 of 8");
  EXPECT_EQ(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"),
            "`w` has 8 bytes, 0 to 8; its shape and dtype make 12");
  EXPECT_EQ(one(R"({"dtype":"F64","shape":[2],"data_offsets":[0,8]})"),
            "`w` has 8 bytes, 0 to 8; its shape and dtype make 16");
  EXPECT_EQ(one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})"),
            "`w` has a shape of more than 2^63 bytes");
  EXPECT_EQ(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"strides":[1]})"),
            "`w.strides` is not a field here");
  EXPECT_EQ(one(R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})"),
            "not JSON: the key `dtype` is given twice");
}

TEST_F(SafetensorsTest, TensorsThatDoNotFitTogether) {
  auto two = [&](std::string_view a, std::string_view b, size_t bytes) {
    return Said(fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},)"
                            R"("b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})",
                            a, b),
                bytes);
  };
  EXPECT_EQ(two("[0,4]", "[4,8]", 8), "");
  EXPECT_EQ(two("[4,8]", "[0,4]", 8), "");
  EXPECT_EQ(two("[0,4]", "[2,6]", 8), "`b` begins at byte 2, and `a` ends at 4; they overlap");
  EXPECT_EQ(two("[0,4]", "[0,4]", 8), "`b` begins at byte 0, and `a` ends at 4; they overlap");
  EXPECT_EQ(two("[0,4]", "[6,10]", 10), "bytes 4 to 6, before `b`, belong to no tensor");
  EXPECT_EQ(two("[1,5]", "[5,9]", 9), "bytes 0 to 1, before `a`, belong to no tensor");
  EXPECT_EQ(two("[0,4]", "[4,8]", 11), "has 11 bytes after its header, but its tensors end at 8");
  EXPECT_EQ(Said(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                 R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                 2),
            "not JSON: the key `a` is given twice");
}

TEST_F(SafetensorsTest, WeightsOfAnotherModel) {
  ModelConfig config = *FindModel("mlp", "small");
  Model model = *MakeModel(config, {.batch = 1, .seq_len = 4}, {});
  std::vector<at::Tensor> params = InitParams(model, 1);
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (size_t i = 0; i < params.size(); ++i) tensors.emplace_back(model.params[i].name, params[i]);
  ASSERT_TRUE(WriteFile(Path(), *FormatSafetensors(tensors)).ok());
  ParamSource source = *ParamsFromFile(model, Path());
  for (size_t i = 0; i < params.size(); ++i) EXPECT_TRUE(SameBits(*source(i), params[i]));

  tensors[0].first = "tok";
  tensors[1].second = at::zeros({3});
  tensors[2].second = params[2].to(at::kDouble);
  // Exact in f32.
  tensors[3].second = params[3].to(at::kBFloat16);
  ASSERT_TRUE(WriteFile(Path(), *FormatSafetensors(tensors)).ok());
  Result<ParamSource> refused = ParamsFromFile(model, Path());
  ASSERT_EQ(refused.diagnostics().size(), 4u);
  EXPECT_EQ(refused.diagnostics()[0].message,
            "has no tensor `tok_embeddings.weight`, which the model needs");
  EXPECT_EQ(refused.diagnostics()[1].message,
            "`layers.0.up.weight` is [3], but the model expects [64,32]");
  EXPECT_EQ(refused.diagnostics()[2].message,
            "`layers.0.down.weight` is F64, which master weights in F32 cannot represent exactly");
  EXPECT_EQ(refused.diagnostics()[3].message, "has a tensor `tok`, which the model does not have");
}

}  // namespace
}  // namespace heddle::run
