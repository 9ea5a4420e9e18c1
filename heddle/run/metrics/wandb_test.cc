#include "heddle/run/metrics/wandb.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <dirent.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "heddle/core/base/file.h"
#include "heddle/run/metrics/crc32.h"
#include "heddle/run/metrics/protobuf.h"

namespace heddle::run {
namespace {

constexpr size_t kBlock = 32768;

std::vector<std::string> RecordsOf(std::string_view file) {
  Result<std::vector<std::string>> records = ReadWandbRecords(file, "file");
  EXPECT_TRUE(records.ok());
  return records.ok() ? *std::move(records) : std::vector<std::string>();
}

TEST(Crc32, IsThatOfZlib) {
  EXPECT_EQ(Crc32("123456789"), 0xCBF43926u);
  EXPECT_EQ(Crc32(""), 0u);
}

TEST(Protobuf, ReadsWhatItWrites) {
  std::string message;
  AppendNumber(message, 1, 300);
  EXPECT_EQ(message, "\x08\xAC\x02");
  AppendBytes(message, 200, "abc");
  AppendDouble(message, 3, 0.5);
  AppendFloat(message, 4, 0.5F);
  AppendNumber(message, 1, UINT64_MAX);
  EXPECT_EQ(FindField(message, 1)->value, UINT64_MAX) << "the last one counts";
  EXPECT_EQ(FindField(message, 200)->bytes, "abc");
  EXPECT_EQ(FindField(message, 3)->bytes.size(), 8u);
  EXPECT_FALSE(FindField(message, 2));
  // A cut message ends early, without a field that is not whole.
  for (size_t size = 0; size < message.size(); ++size) {
    std::string_view rest(message.data(), size);
    while (std::optional<ProtoField> field = TakeField(rest)) EXPECT_LE(field->bytes.size(), size);
  }
}

// The bytes of the file that the `wandb` package (0.21) writes for these records.
TEST(WandbLog, HasTheBytesOfThePackage) {
  std::string file = WandbFrame("abc", 0);
  EXPECT_EQ(file, std::string(":W&B\xE1\xBE\0", 7) + std::string("\xA9\x20\x9D\x53\x03\0\x01", 7) +
                      "abc");
  // 7 bytes are left in the block: the first part is empty.
  std::string second(kBlock - file.size() - 7 - 7, 'x');
  file += WandbFrame(second, file.size());
  ASSERT_EQ(file.size() % kBlock, kBlock - 7);
  file += WandbFrame("de", file.size());
  EXPECT_EQ(file.substr(kBlock - 7),
            std::string("\xA1\x8E\x0C\x3C\0\0\x02\xBA\x4A\x01\xC4\x02\0\x04", 14) + "de");
}

TEST(WandbLog, ReadsRecordsOfAllSizes) {
  std::vector<std::string> records;
  std::string file;
  auto add = [&](size_t size) {
    records.emplace_back(size, static_cast<char>('a' + records.size() % 26));
    file += WandbFrame(records.back(), file.size());
  };
  add(10);
  // Leave 0 to 14 bytes in a block, and continue with a short and a long record.
  for (size_t left = 0; left < 15; ++left) {
    size_t room = kBlock - file.size() % kBlock;
    add((room < 7 + left + 7 ? room + kBlock : room) - 7 - left);
    add(left % 2 == 0 ? 5 : 3 * kBlock);
  }
  EXPECT_EQ(RecordsOf(file), records);
  // A killed run leaves a prefix.
  for (size_t size = 7; size < file.size(); size += 19997) {
    std::vector<std::string> found = RecordsOf(std::string_view(file).substr(0, size));
    ASSERT_LE(found.size(), records.size());
    EXPECT_TRUE(std::equal(found.begin(), found.end(), records.begin())) << size;
  }
  // Records before a flipped bit remain.
  std::string damaged = file;
  damaged[file.size() / 2] ^= 1;
  std::vector<std::string> found = RecordsOf(damaged);
  EXPECT_LT(found.size(), records.size());
  EXPECT_TRUE(std::equal(found.begin(), found.end(), records.begin()));
  EXPECT_FALSE(ReadWandbRecords("{}", "file").ok());
}

// --- Runs

using Texts = std::map<std::string, std::string>;

Texts ItemsIn(std::string_view message) {
  Texts items;
  while (std::optional<ProtoField> field = TakeField(message)) {
    if (field->field == 1)
      items[std::string(FindField(field->bytes, 1)->bytes)] = FindField(field->bytes, 16)->bytes;
  }
  return items;
}

class WandbTest : public ::testing::Test {
 protected:
  std::string Root() const { return dir_.path() + "/wandb"; }
  std::vector<std::string> Folders() const {
    std::vector<std::string> names;
    DIR* stream = ::opendir(Root().c_str());
    while (const dirent* entry = ::readdir(stream)) {
      if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    }
    ::closedir(stream);
    std::ranges::sort(names, {}, [](const std::string& name) { return name.substr(27); });
    return names;
  }
  std::string FileOf(const std::string& folder) const {
    return fmt::format("{}/{}/run-{}.wandb", Root(), folder, folder.substr(28));
  }
  // Writes steps after `begin`, and the end of the run unless it is killed.
  void Run(const WandbOptions& options, int64_t begin, int64_t end, bool killed = false) {
    auto run = OpenWandb(options, begin);
    ASSERT_TRUE(run.ok()) << Format(run.diagnostics());
    for (int64_t step = begin + 1; step <= end; ++step) {
      StepMetrics metrics;
      metrics.step = step;
      metrics.loss = step == 2 ? NAN : 10.0 / static_cast<double>(step);
      if (step == 3) metrics.samples = {{"\"Once", "upon\n"}};
      ASSERT_TRUE((*run)->Write(metrics).ok());
    }
    EXPECT_TRUE(killed || (*run)->Finish(4).ok());
  }
  WandbOptions Options() const {
    return {.folder = dir_.path(),
            .job = "0123abcdef",
            .project = "p",
            .version = "1.2",
            .config = {{"precision", "\"f32\""}, {"training", R"({"steps":3})"}}};
  }
  // The losses by step, and the kinds of all records.
  struct Content {
    Texts losses;
    std::vector<uint64_t> kinds;
    bool operator==(const Content&) const = default;
  };
  Content ContentOf(const std::string& folder) const {
    Content content;
    uint64_t number = 0;
    for (const std::string& one : RecordsOf(*ReadFile(FileOf(folder)))) {
      std::string_view rest = one;
      EXPECT_EQ(TakeField(rest)->value, ++number);
      ProtoField message = *TakeField(rest);
      content.kinds.push_back(message.field);
      if (message.field != 2) continue;
      Texts items = ItemsIn(message.bytes);
      EXPECT_EQ(std::to_string(FindField(FindField(message.bytes, 2)->bytes, 1)->value),
                items["_step"]);
      content.losses[items["_step"]] = items["loss_metrics/global_avg_loss"];
    }
    return content;
  }

  TempDir dir_;
};

TEST_F(WandbTest, WritesARun) {
  Run(Options(), 0, 3);
  ASSERT_EQ(Folders().size(), 1u);
  EXPECT_TRUE(Folders()[0].starts_with("offline-run-20"));
  EXPECT_TRUE(Folders()[0].ends_with("-0123abcdef"));
  Content content = ContentOf(Folders()[0]);
  EXPECT_EQ(content.kinds, (std::vector<uint64_t>{21, 17, 2, 3, 2, 3, 2, 3, 18}));
  EXPECT_EQ(content.losses, (Texts{{"1", "10.0"}, {"2", "NaN"}, {"3", "3.3333333333333335"}}));
  std::vector<std::string> records = RecordsOf(*ReadFile(FileOf(Folders()[0])));
  std::string_view run = FindField(records[1], 17)->bytes;
  EXPECT_EQ(FindField(run, 1)->bytes, "0123abcdef");
  EXPECT_EQ(FindField(run, 3)->bytes, "p");
  EXPECT_FALSE(FindField(run, 2)) << "no entity";
  EXPECT_EQ(ItemsIn(FindField(run, 4)->bytes)["training"], R"({"steps":3})");
  Texts last = ItemsIn(FindField(records[7], 3)->bytes);
  EXPECT_EQ(last["_step"], "3");
  EXPECT_EQ(last["samples/1/prompt"], R"("\"Once")");
  EXPECT_EQ(last["samples/1/text"], R"("upon\n")");
  EXPECT_EQ(FindField(FindField(records[8], 18)->bytes, 1)->value, 4u);
}

TEST_F(WandbTest, AResumedRunIsAnUninterruptedOne) {
  Run(Options(), 0, 6);
  Content whole = ContentOf(Folders()[0]);
  for (bool killed : {true, false}) {
    WandbOptions options = Options();
    options.id = killed ? "killed" : "ended";
    Run(options, 0, 5, killed);
    Run(options, 3, 6);
    auto folders = Folders();
    auto found = std::ranges::find_if(
        folders, [&](const std::string& name) { return name.ends_with(options.id); });
    EXPECT_EQ(ContentOf(*found), whole);
  }
  EXPECT_EQ(Folders().size(), 3u);
  // The half record of a killed run is removed.
  std::string path = FileOf(Folders()[0]);
  std::string text = *ReadFile(path);
  ASSERT_TRUE(WriteFile(path, text.substr(0, text.size() - 5)).ok());
  // Its next upload has the new steps, too.
  ASSERT_TRUE(WriteFile(path + ".synced", "").ok());
  Run(Options(), 5, 6);
  EXPECT_EQ(ContentOf(Folders()[0]), whole);
  EXPECT_FALSE(ReadFile(path + ".synced").ok());
  ASSERT_TRUE(WriteFile(path, text.substr(0, 30)).ok());
  Result<std::unique_ptr<MetricsFile>> damaged = OpenWandb(Options(), 5);
  ASSERT_FALSE(damaged.ok());
  EXPECT_NE(damaged.diagnostics()[0].message.find("damaged before its first step"),
            std::string::npos);
}

TEST_F(WandbTest, AnotherRunOfTheJobGetsANumber) {
  for (int i = 0; i < 3; ++i) Run(Options(), 0, 2);
  std::vector<std::string> folders = Folders();
  ASSERT_EQ(folders.size(), 3u);
  EXPECT_TRUE(folders[1].ends_with("-0123abcdef-2")) << folders[1];
  EXPECT_TRUE(folders[2].ends_with("-0123abcdef-3")) << folders[2];
  // The latest one resumes; without one, a new run begins at the step.
  Run(Options(), 2, 4);
  EXPECT_EQ(ContentOf(Folders()[2]).losses.size(), 4u);
  WandbOptions other = Options();
  other.job = "other";
  Run(other, 2, 4);
  EXPECT_EQ(ContentOf(Folders()[3]).losses.size(), 2u);
}

}  // namespace
}  // namespace heddle::run
