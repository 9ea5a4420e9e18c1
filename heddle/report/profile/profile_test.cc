#include "heddle/report/profile/profile.h"

#include <gtest/gtest.h>

#include <filesystem>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "heddle/core/base/file.h"

namespace heddle {
namespace {

// A folder that is removed at the end.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / ("heddle_profile_" + name)) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }

  std::string Write(const std::string& name, const std::string& text) const {
    std::string path = path_ / name;
    EXPECT_TRUE(WriteFile(path, text).ok());
    return path;
  }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string Event(std::string_view category, std::string_view name, double begin, double duration,
                  int thread = 7) {
  return fmt::format(
      R"({{"ph":"X","cat":"{}","name":"{}","pid":0,"tid":{},"ts":{},"dur":{},"args":{{}}}})",
      category, name, thread, begin, duration);
}

std::string TraceOf(const std::vector<std::string>& events) {
  return fmt::format(R"({{"schemaVersion":1,"traceEvents":[{}]}})", fmt::join(events, ",\n"));
}

// Three steps of 100 us: two products, a layer norm that is repeated, an optimizer, and an idle
// time. A fill runs before them.
std::string ThreeSteps() {
  std::vector<std::string> events = {Event("kernel", "fill", 1000, 1)};
  for (int step = 0; step < 3; ++step) {
    double at = 2000 + 100 * step;
    events.push_back(Event("kernel", "nvjet_sm90_tst", at, 20));
    events.push_back(Event("kernel", "rows", at + 20, 5));
    events.push_back(Event("kernel", "rows", at + 25, 5));
    events.push_back(Event("kernel", "nvjet_sm90_tst", at + 30, 20));
    events.push_back(Event("kernel", "adamw", at + 50, 40));
    events.push_back(Event("gpu_memcpy", "Memcpy HtoD", at + 10, 2, 13));
    // The host is not read where a device is.
    events.push_back(Event("cpu_op", "aten::mm", at, 90, 99));
  }
  return TraceOf(events);
}

const ClassTimes& Class(const Profile& profile, std::string_view name) {
  for (const ClassTimes& times : profile.classes) {
    if (times.name == name) return times;
  }
  ADD_FAILURE() << "no class " << name;
  return profile.classes.at(0);
}

TEST(Profile, FindsStepsAndSumsClasses) {
  Folder folder("steps");
  folder.Write("steps_3-5_rank_0.json", ThreeSteps());
  Result<Profile> profile = LoadProfile(folder.path(), "");
  ASSERT_TRUE(profile.ok());
  ASSERT_EQ(profile->steps[0].count(), 3U);
  EXPECT_EQ(profile->steps[0].edges[0].value, 1'000'000) << "after the fill";
  // The last step ends with its last kernel, without the idle time.
  EXPECT_EQ(profile->step().value, 290'000 / 3);
  EXPECT_EQ(Class(*profile, "matmul").measured.value, 40'000);
  EXPECT_NEAR(Class(*profile, "matmul").launches, 2, 1e-9);
  EXPECT_EQ(Class(*profile, "norm").measured.value, 10'000);
  EXPECT_EQ(Class(*profile, "optimizer").measured.value, 40'000);
  EXPECT_EQ(Class(*profile, "copy").measured.value, 2'000) << "a copy, and not the fill before";
  EXPECT_FALSE(profile->simulated_step());
}

TEST(Profile, ComparesWithTheSimulationInTheFolder) {
  Folder folder("simulated");
  folder.Write("steps_3-5_rank_0.json", ThreeSteps());
  folder.Write("simulated.json",
               R"({"displayTimeUnit":"ms","traceEvents":[
{"ph":"M","pid":0,"tid":0,"name":"thread_name","args":{"name":"compute"}},
)" + Event("matmul", "%mm", 0, 30, 0) +
                   ",\n" + Event("wait", "%w", 30, 10, 0) + ",\n" +
                   Event("optimizer", "%p", 40, 50, 0) + "]}");
  Result<Profile> profile = LoadProfile(folder.path(), "");
  ASSERT_TRUE(profile.ok());
  EXPECT_EQ(profile->simulated_step()->value, 90'000);
  EXPECT_EQ(profile->simulated->lanes[0], "compute");
  EXPECT_EQ(profile->simulated->spans.size(), 3U);
  EXPECT_EQ(Class(*profile, "matmul").simulated->value, 30'000);
  EXPECT_EQ(Class(*profile, "norm").simulated->value, 0);
  std::string text = FormatProfile(*profile);
  EXPECT_NE(text.find("-25.0 %"), std::string::npos) << text;
  nlohmann::ordered_json json = ToJson(*profile);
  EXPECT_EQ(json["simulated_step_ms"], 0.09);
  EXPECT_EQ(json["classes"].size(), 4U) << "the host does not know when a GPU waits";
  EXPECT_NE(FormatProfilePage(*profile).find("steps_3-5_rank_0.json"), std::string::npos);
}

TEST(Profile, ReadsOpsOfTheHostWithoutTheirCallees) {
  Folder folder("host");
  std::string path = folder.Write(
      "one.json",
      TraceOf({Event("cpu_op", "aten::linear", 0, 50), Event("cpu_op", "aten::mm", 5, 40),
               Event("cpu_op", "aten::mul_", 60, 10), Event("cpu_op", "aten::mm", 0, 30, 8),
               Event("cpu_op", "mine::op", 80, 10)}));
  Result<Profile> profile = LoadProfile(path, "");
  ASSERT_TRUE(profile.ok());
  EXPECT_EQ(profile->steps[0].count(), 1U) << "nothing repeats";
  EXPECT_EQ(Class(*profile, "matmul").measured.value, 30'000) << "of the other thread";
  EXPECT_EQ(Class(*profile, "pointwise").measured.value, 10'000);
  EXPECT_EQ(profile->step().value, 90'000);
}

std::string Memory(int64_t total, double time) {
  return fmt::format(
      R"({{"ph":"i","name":"[memory]","pid":0,"tid":7,"ts":{},"args":{{"Total Allocated":{},"Device Type":0}}}})",
      time, total);
}

// Two steps of a rank process on the host: a product, a gather of two messages, another product
// during it, a wait, and a reduction on a thread of the process group.
std::string TraceOfRank(int rank, int world_size, std::string_view run, double begin = 100) {
  std::vector<std::string> events;
  for (int step = 0; step < 2; ++step) {
    double at = begin + 100 * step;
    events.push_back(Event("user_annotation", fmt::format("ProfilerStep#{}", step + 5), at, 100));
    events.push_back(Event("cpu_op", "aten::mm", at, 20));
    events.push_back(Event("user_annotation", "heddle:all_gather", at + 20, 40));
    events.push_back(Event("user_annotation", "gloo:recv", at + 21, 38));
    events.push_back(Event("user_annotation", "gloo:send", at + 22, 37));
    events.push_back(Event("cpu_op", "aten::mm", at + 25, 20));
    events.push_back(Event("user_annotation", "heddle:wait", at + 50, 10));
    events.push_back(Event("user_annotation", "gloo:all_reduce", at + 60, 30, 8));
    events.push_back(Event("cpu_op", "aten::copy_", at + 65, 10, 8));
    events.push_back(Event("user_annotation", "mine", at + 60, 5));
  }
  events.push_back(Memory(1000, begin + 10));
  events.push_back(Memory(600, begin + 50));
  return fmt::format(
      R"({{"baseTimeNanoseconds":5000,"distributedInfo":{{"rank":{},"world_size":{}}},)"
      R"("heddle":{{"run":"{}","first_step":5,"last_step":6,"held_bytes":24}},"traceEvents":[{}]}})",
      rank, world_size, run, fmt::join(events, ",\n"));
}

TEST(Profile, ReadsCollectivesWaitsAndMemoryOfRankProcesses) {
  Folder folder("ranks");
  folder.Write("steps_5-6_rank_0.json", TraceOfRank(0, 2, "a"));
  folder.Write("steps_5-6_rank_1.json", TraceOfRank(1, 2, "a", 130));
  folder.Write("steps_5-6_rank_1.json.partial", "{");
  Result<Profile> profile = LoadProfile(folder.path(), "");
  ASSERT_TRUE(profile.ok()) << Format(profile.diagnostics()[0]);
  ASSERT_EQ(profile->ranks.size(), 2U);
  const price::Trace& trace = profile->ranks[1];
  EXPECT_EQ(profile->steps[1].count(), 2U);
  EXPECT_EQ(profile->step().value, 100'000) << "from mark to mark";
  EXPECT_EQ(trace.origin.value, 5000 + 130'000);
  EXPECT_EQ(Class(*profile, "matmul").measured.value, 40'000);
  EXPECT_NEAR(Class(*profile, "matmul").launches, 2, 1e-9);
  EXPECT_EQ(Class(*profile, "collective").measured.value, 40'000 + 30'000)
      << "a gather is one span, without its messages and copies";
  EXPECT_NEAR(Class(*profile, "collective").launches, 2, 1e-9);
  EXPECT_EQ(Class(*profile, "wait").measured.value, 10'000);
  EXPECT_EQ(profile->classes.size(), 3U);
  EXPECT_EQ(profile->peak_memory()->value, 1024);
  std::string page = FormatProfilePage(*profile);
  EXPECT_NE(page.find(R"("memory":{"time":[10000,50000],"bytes":[1024,624]})"), std::string::npos)
      << page.substr(page.find("\"memory\""), 200);
  // Rank 1 begins 30 us later.
  EXPECT_NE(page.find(R"("begin":[30000,)"), std::string::npos);
  EXPECT_NE(FormatProfile(*profile).find("at most 1.00 KiB"), std::string::npos);
}

TEST(Profile, RefusesFoldersWithoutAllRanksOfARun) {
  auto message = [](const std::vector<std::pair<std::string, std::string>>& files) {
    Folder folder("incomplete");
    for (const auto& [name, text] : files) folder.Write(name, text);
    Result<Profile> profile = LoadProfile(folder.path(), "");
    return profile.ok() ? "" : profile.diagnostics()[0].message;
  };
  EXPECT_NE(message({{"steps_5-6_rank_0.json", TraceOfRank(0, 4, "a")},
                     {"steps_5-6_rank_2.json", TraceOfRank(2, 4, "a")}})
                .find("traces of 2 of 4 ranks, and none of rank 1, 3;"),
            std::string::npos);
  EXPECT_NE(message({{"steps_5-6_rank_0.json", TraceOfRank(0, 2, "a")},
                     {"steps_5-6_rank_1.json", TraceOfRank(1, 2, "b")}})
                .find("are of different runs"),
            std::string::npos);
  EXPECT_NE(message({{"steps_5-6_rank_0.json", TraceOfRank(0, 2, "a")},
                     {"steps_5-6_rank_1.json", TraceOfRank(0, 2, "a")}})
                .find("two traces of rank 0"),
            std::string::npos);
  // Earlier steps are left out, and named.
  Folder folder("later");
  folder.Write("steps_5-6_rank_0.json", TraceOfRank(0, 1, "a"));
  folder.Write("steps_10-11_rank_0.json", TraceOfRank(0, 1, "b"));
  Result<Profile> profile = LoadProfile(folder.path(), "");
  ASSERT_TRUE(profile.ok());
  EXPECT_EQ(profile->ranks.size(), 1U);
  EXPECT_EQ(profile->ranks[0].file, "steps_10-11_rank_0.json");
  EXPECT_NE(FormatProfile(*profile).find("steps_5-6_rank_0.json: left out"), std::string::npos);
}

// Returns the message for a trace with this text.
std::string MessageFor(const std::string& text) {
  Folder folder("bad");
  std::string path = folder.Write("bad.json", text);
  Result<Profile> profile = LoadProfile(path, "");
  EXPECT_FALSE(profile.ok());
  return profile.ok() ? "" : Format(profile.diagnostics()[0]);
}

TEST(Profile, RefusesDamagedTraces) {
  std::string whole = ThreeSteps();
  EXPECT_NE(MessageFor(whole.substr(0, whole.size() / 2)).find("bad.json:"), std::string::npos);
  EXPECT_NE(MessageFor("{}").find("not a trace"), std::string::npos);
  EXPECT_NE(MessageFor(TraceOf({})).find("neither kernels nor ops"), std::string::npos);
  EXPECT_NE(MessageFor(R"([{"ph":"X","cat":"kernel","name":"k","ts":"now","dur":1}])")
                .find("`ts` is text, expected a number"),
            std::string::npos);
  EXPECT_NE(MessageFor(R"([{"ph":"X","cat":"kernel","name":"k","ts":1}])").find("no `dur`"),
            std::string::npos);
  EXPECT_NE(MessageFor(TraceOf({Event("kernel", "k", 1e30, 1)})).find("begins at"),
            std::string::npos);
  EXPECT_NE(MessageFor(TraceOf({Event("kernel", "k", 1, -1)})).find("takes -1 us"),
            std::string::npos);
  EXPECT_NE(MessageFor(TraceOf({Event("kernel", "k", 1, 1), Memory(-5, 1)}))
                .find("bad.json:2:1: a change of memory needs"),
            std::string::npos);
  EXPECT_NE(MessageFor(TraceOfRank(3, 2, "a")).find("bad.json:1:"), std::string::npos)
      << "rank 3 of 2";
}

TEST(Profile, FolderWithoutTracesSaysHowToGetThem) {
  Folder folder("none");
  Result<Profile> profile = LoadProfile(folder.path(), "");
  ASSERT_FALSE(profile.ok());
  EXPECT_NE(profile.diagnostics()[0].message.find("--profile"), std::string::npos);
}

}  // namespace
}  // namespace heddle
