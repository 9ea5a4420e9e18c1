// Cases that have no text form: archives and damaged files.
#include "heddle/import/import.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "heddle/import/read/zip.h"

namespace heddle {
namespace {

void Append(std::string& out, uint64_t number, size_t width) {
  for (size_t i = 0; i < width; ++i) out += static_cast<char>(number >> (8 * i));
}

// An archive of one entry. `claimed` is the size that the directory states.
std::string MakeZip(const std::string& name, const std::string& packed, size_t claimed,
                    uint16_t method, uint32_t checksum) {
  std::string out;
  Append(out, 0x04034b50, 4);
  out.append(22, '\0');
  Append(out, name.size(), 2);
  Append(out, 0, 2);
  out += name + packed;
  size_t directory = out.size();
  Append(out, 0x02014b50, 4);
  Append(out, 0, 6);
  Append(out, method, 2);
  Append(out, 0, 4);
  Append(out, checksum, 4);
  Append(out, packed.size(), 4);
  Append(out, claimed, 4);
  Append(out, name.size(), 2);
  out.append(16, '\0');
  out += name;
  size_t size = out.size() - directory;
  Append(out, 0x06054b50, 4);
  Append(out, 0, 4);
  Append(out, 1, 2);
  Append(out, 1, 2);
  Append(out, size, 4);
  Append(out, directory, 4);
  Append(out, 0, 2);
  return out;
}

uint32_t Checksum(const std::string& text) {
  return static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

std::string Deflate(const std::string& text) {
  std::string out(compressBound(text.size()) + 64, '\0');
  z_stream stream = {};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

constexpr char kProgram[] =
    R"({"graph_module": {"graph": {"inputs": [{"as_tensor": {"name": "x"}}],
 "outputs": [{"as_tensor": {"name": "relu"}}], "nodes": [{"target": "torch.ops.aten.relu.default",
 "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}}], "outputs": [{"as_tensor": {"name": "relu"}}]}],
 "tensor_values": {"x": {"dtype": 7, "sizes": [{"as_int": 4}]}}}}})";

std::string MessageOf(const std::string& bytes) {
  Result<Imported> imported = Import(bytes, "file", {});
  return imported.ok() ? "" : imported.diagnostics()[0].message;
}

TEST(Import, ReadsArchivesStoredAndPacked) {
  std::string text = kProgram;
  EXPECT_EQ(MessageOf(MakeZip("m/models/model.json", text, text.size(), 0, Checksum(text))), "");
  EXPECT_EQ(
      MessageOf(MakeZip("m/models/model.json", Deflate(text), text.size(), 8, Checksum(text))), "");
}

TEST(Import, RefusesArchivesThatLie) {
  std::string text = kProgram;
  auto zip = [&](const char* name, size_t claimed, uint16_t method, uint32_t checksum) {
    return MessageOf(MakeZip(name, method == 8 ? Deflate(text) : text, claimed, method, checksum));
  };
  constexpr char kModel[] = "m/models/model.json";
  uint32_t good = Checksum(text);
  EXPECT_NE(zip(kModel, text.size() + 1, 0, good).find("is not compressed"), std::string::npos);
  EXPECT_NE(zip(kModel, text.size() + 1, 8, good).find("does not decompress"), std::string::npos);
  EXPECT_NE(zip(kModel, size_t{1} << 31, 8, good).find("claims 2147483648"), std::string::npos);
  EXPECT_NE(zip(kModel, text.size(), 0, good + 1).find("checksum"), std::string::npos);
  EXPECT_NE(zip(kModel, text.size(), 9, good).find("method 9"), std::string::npos);
  EXPECT_NE(zip("m/../models/model.json", text.size(), 0, good).find("outside the archive"),
            std::string::npos);
  EXPECT_NE(zip("/models/model.json", text.size(), 0, good).find("outside the archive"),
            std::string::npos);
  std::string archive = MakeZip(kModel, text, text.size(), 0, good);
  EXPECT_NE(MessageOf(archive.substr(0, archive.size() - 1)).find("truncated"), std::string::npos);
  EXPECT_NE(zip("m/other.json", text.size(), 0, good).find("no models/"), std::string::npos);
}

// Bytes after the end of the text are not part of it, such as the rest of a truncated text.
TEST(Import, ReadsJsonWithRoomBehindItAndWithout) {
  std::string all = kProgram;
  for (size_t size = 0; size <= all.size(); ++size) {
    std::string tight = all.substr(0, size);
    std::string roomy = all;
    roomy.reserve(all.size() + 64);
    roomy.resize(size);
    ASSERT_EQ(MessageOf(roomy), MessageOf(tight)) << tight;
  }
}

TEST(Import, RefusesDeepJson) {
  std::string deep = "{\"graph_module\": ";
  deep.append(100'000, '[');
  EXPECT_NE(MessageOf(deep).find("not JSON"), std::string::npos);
}

// Truncations and byte flips of valid files: the import rejects them, or returns a graph that
// round-trips through text.
TEST(Import, SurvivesDamage) {
  std::string text = kProgram;
  std::string archive =
      MakeZip("m/models/model.json", Deflate(text), text.size(), 8, Checksum(text));
  std::string printed =
      "class Repro(torch.nn.Module):\n"
      "    def forward(self, primals_1, primals_2: \"f32[8]\"):\n"
      "        split = torch.ops.aten.split.Tensor(primals_1, 2, 1)\n"
      "        getitem = split[0];  split = None\n"
      "        all_reduce = torch.ops._c10d_functional.all_reduce.default(getitem, 'sum', '0')\n"
      "        wait_tensor = torch.ops._c10d_functional.wait_tensor.default(all_reduce)\n"
      "        return (wait_tensor, None)\n"
      "def load_args(reader):\n    s0 = 4\n"
      "    buf0 = reader.storage(None, 64)\n"
      "    reader.tensor(buf0, (4, s0*(4//4)), dtype=torch.float32)  # primals_1\n"
      "    buf1 = reader.storage(None, 32)\n    reader.tensor(buf1, (8,))  # primals_2\n"
      "def get_pg_config():\n    return {'0': {'size': 2, 'rank': 0}}\n";
  for (const std::string& good : {text, archive, printed}) {
    ASSERT_EQ(MessageOf(good), "");
    auto survives = [](const std::string& bytes) {
      Result<Imported> imported = Import(bytes, "file", {});
      if (!imported.ok()) return;
      std::string once = Print(imported->module);
      Result<Module> again = ParseModule(once, "printed", Ops());
      ASSERT_TRUE(again.ok()) << Format(again.diagnostics()) << once;
      EXPECT_EQ(Print(*again), once);
    };
    for (size_t i = 0; i < good.size(); ++i) {
      survives(good.substr(0, i));
      for (char c : {'\0', '[', ')', '9', '\'', '\n', '-'}) {
        std::string bad = good;
        bad[i] = c;
        survives(bad);
      }
    }
  }
}

}  // namespace
}  // namespace heddle
