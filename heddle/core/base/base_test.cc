#include <cstdio>
#include <filesystem>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "heddle/core/base/file.h"
#include "heddle/core/base/hash.h"
#include "heddle/core/base/host.h"
#include "heddle/core/base/id.h"
#include "heddle/core/base/mapped_file.h"
#include "heddle/core/base/scanner.h"
#include "heddle/core/base/strings.h"
#include "heddle/core/base/text.h"
#include "heddle/core/base/units.h"

namespace heddle {
namespace {

using TestId = Id<struct TestTag>;

TEST(Id, NoneIsFalseAndRangesIterate) {
  EXPECT_FALSE(TestId());
  EXPECT_TRUE(TestId(0));
  std::vector<uint32_t> seen;
  for (TestId id : IdRange<TestId>(2, 5)) seen.push_back(id.index());
  EXPECT_EQ(seen, (std::vector<uint32_t>{2, 3, 4}));
}

TEST(StringTable, EachStringOnceAndFoundAgain) {
  StringTable<TestId> table;
  std::vector<TestId> ids;
  for (int i = 0; i < 1000; ++i) ids.push_back(table.Intern("name" + std::to_string(i)));
  EXPECT_EQ(table.size(), 1000u);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(table.Intern("name" + std::to_string(i)), ids[i]);
    EXPECT_EQ(table[ids[i]], "name" + std::to_string(i));
  }
  EXPECT_FALSE(table.Find("other"));
  EXPECT_EQ(table[table.Intern("")], "");
}

TEST(StringTable, NamesStayWhenTheTableGrows) {
  for (size_t reserved : {0, 100, 1'000'000}) {
    StringTable<TestId> table;
    table.Reserve(reserved, reserved);
    // Visits every name once, in large strides.
    constexpr uint64_t kNames = 20'011;
    auto name = [](uint64_t i) {
      uint64_t number = i * 7919 % kNames;
      return (number % 3 == 0 ? "mm_" : "wait_tensor_") + std::to_string(number) +
             (number % 7 == 0 ? ".1" : "");
    };
    for (uint64_t i = 0; i < kNames; ++i) {
      std::string fresh = name(i);
      ASSERT_EQ(table.Intern(fresh), TestId(i));
      ASSERT_EQ(table.Find(name(i / 2)), TestId(i / 2));
    }
    EXPECT_EQ(table.size(), kNames);
    StringTable<TestId> copy = table;
    for (uint64_t i = 0; i < kNames; ++i) ASSERT_EQ(copy.Find(name(i)), TestId(i));
    EXPECT_FALSE(copy.Find("mm_1"));
    EXPECT_FALSE(copy.Find("wait_tensor_20011"));
  }
}

TEST(Hash, IsTheSameEverywhere) {
  // Fixed by xxHash's specification; a change would change every reproducer and cache key.
  EXPECT_EQ(Hash64("heddle"), 0xc9fcbd7fe1cf1fd8u);
  std::vector<uint64_t> words{1, 2, 3};
  EXPECT_EQ(Format(HashWords128(words)), "d0d66ae2837a0117026f21f9c50dcf1f");
  EXPECT_NE(MixHash(1, 2), MixHash(2, 1));
}

TEST(Units, FormatAndParse) {
  EXPECT_EQ(Format(Bytes{17}), "17 B");
  EXPECT_EQ(Format(GiB(3)), "3.00 GiB");
  EXPECT_EQ(Format(Nanos{1'500'000}), "1.50 ms");
  EXPECT_EQ(Format(Flops{2'000'000'000'000}), "2.00 TFLOP");
  EXPECT_EQ(*ParseBytes("64MiB"), MiB(64));
  EXPECT_EQ(*ParseBytes("1.5 GiB"), MiB(1536));
  EXPECT_EQ(*ParseBytes("10GB"), Bytes{10'000'000'000});
  for (const char* bad : {"", "MiB", "-1MiB", "64 parsecs", "1e300GiB", "nan"}) {
    Result<Bytes> parsed = ParseBytes(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    Diag kind = parsed.diagnostics()[0].kind;
    EXPECT_TRUE(kind == Diag::kBadSize || kind == Diag::kSizeOverflow) << bad;
  }
}

TEST(Text, NumbersReadBackAsThemselves) {
  auto text = [](double value) {
    std::string out;
    AppendFloat(out, value);
    return out;
  };
  EXPECT_EQ(text(1.0), "1.0");
  EXPECT_EQ(text(0.1), "0.1");
  EXPECT_EQ(text(-0.0), "-0.0");
  EXPECT_EQ(text(1e300), "1e+300");
  EXPECT_EQ(text(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(text(-std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(WithCommas(8030261248), "8,030,261,248");
  EXPECT_EQ(WithCommas(-1234), "-1,234");
  EXPECT_EQ(WithCommas(-123), "-123");
}

TEST(Text, NearestNamesOnlyLikelySlips) {
  std::vector<std::string_view> names{"all_gather", "reduce_scatter", "wait"};
  EXPECT_EQ(Nearest("all_gahter", names), "all_gather");
  EXPECT_EQ(Nearest("wiat", names), "wait");
  EXPECT_EQ(Nearest("embedding", names), "");
  EXPECT_EQ(Nearest(std::string(100'000, 'x'), names), "");
}

TEST(Scanner, QuotedStringsUnescape) {
  auto read = [](std::string_view text) { return Scanner(text).TakeQuoted(); };
  EXPECT_EQ(read(R"("a\"b\\c\n\x41")"), "a\"b\\c\nA");
  EXPECT_EQ(read("\"open"), std::nullopt);
  EXPECT_EQ(read("\"two\nlines\""), std::nullopt);
  EXPECT_EQ(read(R"("\q")"), std::nullopt);
  EXPECT_EQ(read(R"("\x4)"), std::nullopt);
  EXPECT_EQ(Quoted("a\"\x01\n"), R"("a\"\x01\n")");
}

TEST(Diagnostic, CaretStandsUnderTheText) {
  SourceText text("f.hd", "first\n  second line\n");
  Diagnostic d = text.At(MakeDiagnostic(Diag::kSyntax, "expected {}", "x"), 8, 6);
  EXPECT_EQ(Format(d), "f.hd:2:3: expected x [syntax]\n  second line\n  ^~~~~~\n");
}

TEST(Diagnostic, LongLinesAreCutAroundTheCaret) {
  std::string line(100'000, 'a');
  line[50'000] = 'B';
  SourceText text("f.hd", line);
  std::string shown = Format(text.At(MakeDiagnostic(Diag::kSyntax, "here"), 50'000));
  EXPECT_LT(shown.size(), 500u);
  size_t caret = shown.find('^') - (shown.rfind('\n', shown.find('^')) + 1);
  size_t line_begin = shown.find('\n') + 1;
  EXPECT_EQ(shown[line_begin + caret], 'B');
}

TEST(File, WritesAllOrNothing) {
  std::filesystem::path dir = std::filesystem::temp_directory_path() / "heddle_base_test";
  std::filesystem::create_directories(dir);
  std::string path = dir / "x.txt";
  ASSERT_TRUE(WriteFile(path, "one").ok());
  ASSERT_TRUE(WriteFile(path, "two").ok());
  EXPECT_EQ(*ReadFile(path), "two");
  EXPECT_GE(ReadFile(path)->capacity(), 3U + 64);
  // No temporary file remains.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir), {}), 1);
  EXPECT_EQ(WriteFile(dir / "no" / "x", "y").diagnostics()[0].kind, Diag::kFileWrite);
  EXPECT_EQ(ReadFile(dir / "no").diagnostics()[0].kind, Diag::kFileRead);
  std::filesystem::remove_all(dir);
}

TEST(File, OnlyRegularFilesAreRead) {
  TempDir dir;
  std::string path = dir.path() + "/x";
  ASSERT_EQ(::mkfifo(path.c_str(), 0666), 0);
  EXPECT_EQ(ReadFile(path).diagnostics()[0].message,
            fmt::format("cannot read `{}`: it is a FIFO, expected a regular file", path));
  EXPECT_EQ(OpenInput(dir.path()).problem, "Is a directory");
  EXPECT_EQ(OpenInput(dir.path() + "/no").problem, "No such file or directory");
  EXPECT_EQ(OpenInput("/dev/null").problem, "it is a device, expected a regular file");
  std::filesystem::create_symlink("x", dir.path() + "/link");
  EXPECT_EQ(OpenInput(dir.path() + "/link").fd, -1);
  EXPECT_FALSE(MappedFile::Open(path).ok());
}

TEST(File, LargeFilesAreRefusedBySize) {
  TempDir dir;
  std::string path = dir.path() + "/x";
  ASSERT_TRUE(WriteFile(path, "").ok());
  std::filesystem::resize_file(path, uint64_t{3} << 30);
  EXPECT_EQ(ReadFile(path).diagnostics()[0].message,
            fmt::format("`{}` has 3.00 GiB, the limit is 1.00 GiB", path));
  EXPECT_EQ((*MappedFile::Open(path))->bytes().size(), size_t{3} << 30);
}

TEST(File, LinksStayAndModesAreKept) {
  TempDir dir;
  std::string path = dir.path() + "/x.txt";
  std::string link = dir.path() + "/link";
  ASSERT_TRUE(WriteFile(path, "one").ok());
  std::filesystem::permissions(path, std::filesystem::perms(0640));
  std::filesystem::create_symlink("x.txt", link);
  ASSERT_TRUE(WriteFile(link, "two").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(*ReadFile(path), "two");
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0640));
}

TEST(File, DirectoriesComeAndGo) {
  std::string path;
  {
    TempDir dir;
    path = dir.path();
    ASSERT_TRUE(std::filesystem::is_directory(path));
    ASSERT_TRUE(MakeDirectories(path + "/a/b/c").ok());
    ASSERT_TRUE(MakeDirectories(path + "/a/b/c").ok());
    ASSERT_TRUE(WriteFile(path + "/a/b/c/x", "y").ok());
    EXPECT_EQ(MakeDirectories(path + "/a/b/c/x").diagnostics()[0].kind, Diag::kFileWrite);
    EXPECT_EQ(MakeDirectories(path + "/a/b/c/x/y").diagnostics()[0].kind, Diag::kFileWrite);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Host, GetsFailedChecksAfterTheCrashHook) {
  struct Failed {
    std::string text;
  };
  bool ran = false;
  CrashHook hook = SetCrashHook({[](void* context) { *static_cast<bool*>(context) = true; }, &ran});
  Host none = SetHost({.check_failed = [](const std::string& text) { throw Failed{text}; }});
  try {
    HEDDLE_CHECK(1 + 1 == 3, "for a test");
    FAIL() << "the check did not throw";
  } catch (const Failed& failed) {
    EXPECT_NE(failed.text.find("1 + 1 == 3: for a test"), std::string::npos) << failed.text;
  }
  EXPECT_TRUE(ran);
  SetHost(none);
  SetCrashHook(hook);
}

TEST(Host, MayStopAComputation) {
  PollHost();
  Host none = SetHost({.poll = [] { throw 7; }});
  EXPECT_THROW(PollHost(), int);
  SetHost(none);
  PollHost();
}

}  // namespace
}  // namespace heddle
