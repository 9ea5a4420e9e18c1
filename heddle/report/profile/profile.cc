#include "heddle/report/profile/profile.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <nlohmann/json.hpp>

#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"
#include "heddle/report/html/page_files.h"
#include "heddle/report/html/step_data.h"

namespace heddle {
namespace {

std::vector<std::string> TracesIn(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::string name = entry.path().filename();
    if (name.starts_with("steps_") && name.ends_with(".json")) paths.push_back(entry.path());
  }
  // Rank 2 before rank 10.
  std::ranges::sort(paths, [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return paths;
}

void SumClasses(Profile& profile) {
  std::map<std::string, ClassTimes> sums;
  auto ranks = static_cast<double>(profile.ranks.size());
  for (size_t r = 0; r < profile.ranks.size(); ++r) {
    const price::TracedSteps& steps = profile.steps[r];
    double share = 1 / (ranks * static_cast<double>(steps.count()));
    std::map<std::string, Nanos> times;
    for (const price::TraceSpan& span : profile.ranks[r].spans) {
      if (span.begin < steps.edges[0]) continue;
      times[span.kernel_class] += span.end - span.begin;
      sums[span.kernel_class].launches += share;
    }
    for (const auto& [name, time] : times)
      sums[name].measured += Nanos{std::llround(static_cast<double>(time.value) * share)};
  }
  if (profile.simulated) {
    for (auto& [name, times] : sums) times.simulated = Nanos{};
    for (const price::TraceSpan& span : profile.simulated->spans) {
      std::optional<Nanos>& time = sums[span.kernel_class].simulated;
      time = time.value_or(Nanos{}) + (span.end - span.begin);
    }
  }
  for (auto& [name, times] : sums) {
    times.name = name;
    profile.classes.push_back(times);
  }
  std::ranges::stable_sort(profile.classes, [](const ClassTimes& a, const ClassTimes& b) {
    return a.measured > b.measured;
  });
}

// `+12.3 %`: how much the simulated time differs from the measured one.
std::string ErrorOf(Nanos measured, std::optional<Nanos> simulated) {
  if (!simulated || measured.value == 0) return "";
  return fmt::format("{:+.1f} %", 100.0 * static_cast<double>((*simulated - measured).value) /
                                      static_cast<double>(measured.value));
}

nlohmann::ordered_json Millis(std::optional<Nanos> time) {
  return time ? nlohmann::ordered_json(static_cast<double>(time->value) / kNanosPerMilli)
              : nlohmann::ordered_json();
}

// The spans of a step as columns, and its lanes.
nlohmann::ordered_json PageTrace(const price::Trace& trace, Nanos from, Nanos to,
                                 std::string_view title) {
  nlohmann::ordered_json data = {{"title", title}, {"lanes", trace.lanes}};
  std::map<std::string_view, size_t> strings;
  std::vector<std::string_view> texts;
  auto number = [&](std::string_view text) {
    auto [at, is_new] = strings.try_emplace(text, texts.size());
    if (is_new) texts.push_back(text);
    return at->second;
  };
  for (const char* column : {"begin", "end", "lane", "name", "kind"})
    data[column] = nlohmann::ordered_json::array();
  for (const price::TraceSpan& span : trace.spans) {
    if (span.begin < from || span.begin >= to) continue;
    data["begin"].push_back((span.begin - from).value);
    data["end"].push_back((span.end - from).value);
    data["lane"].push_back(span.lane);
    data["name"].push_back(number(span.name));
    data["kind"].push_back(number(span.kernel_class));
  }
  data["strings"] = texts;
  return data;
}

}  // namespace

Nanos Profile::step() const {
  Nanos slowest;
  for (const price::TracedSteps& rank : steps) slowest = std::max(slowest, rank.step());
  return slowest;
}

std::optional<Nanos> Profile::simulated_step() const {
  return simulated ? std::optional(simulated->end()) : std::nullopt;
}

Result<Profile> LoadProfile(const std::string& path, const std::string& simulated) {
  Profile profile;
  std::string prediction = simulated;
  std::vector<std::string> files = {path};
  if (IsDirectory(path)) {
    files = TracesIn(path);
    if (files.empty())
      return Error(Diag::kFileRead,
                   "`{}` has no traces (steps_*.json); `heddle train --profile` writes them", path);
    std::string beside = fmt::format("{}/{}", path, kSimulatedTrace);
    std::error_code error;
    if (prediction.empty() && std::filesystem::exists(beside, error)) prediction = beside;
  }
  for (const std::string& file : files) {
    HEDDLE_TRY(price::Trace trace, price::ReadTrace(file));
    profile.steps.push_back(price::FindSteps(trace));
    profile.ranks.push_back(std::move(trace));
  }
  if (!prediction.empty()) {
    HEDDLE_TRY(profile.simulated, price::ReadTrace(prediction));
  }
  SumClasses(profile);
  return profile;
}

std::string FormatProfile(const Profile& profile) {
  std::string out;
  for (size_t r = 0; r < profile.ranks.size(); ++r)
    out += fmt::format("{}: {} of {}\n", profile.ranks[r].file,
                       Counted(static_cast<int64_t>(profile.steps[r].count()), "step"),
                       Format(profile.steps[r].step()));
  std::optional<Nanos> simulated = profile.simulated_step();
  if (simulated)
    out += fmt::format("{}: a step of {}, {}\n", profile.simulated->file, Format(*simulated),
                       ErrorOf(profile.step(), simulated));
  out += fmt::format("\n{:<12} {:>9} {:>11}", "class", "launches", "measured");
  out += simulated ? fmt::format(" {:>11} {:>10}\n", "simulated", "error") : "\n";
  for (const ClassTimes& times : profile.classes) {
    out +=
        fmt::format("{:<12} {:>9.0f} {:>11}", times.name, times.launches, Format(times.measured));
    if (simulated)
      out += fmt::format(" {:>11} {:>10}", Format(times.simulated.value_or(Nanos{})),
                         ErrorOf(times.measured, times.simulated));
    while (out.ends_with(' ')) out.pop_back();
    out += "\n";
  }
  return out;
}

nlohmann::ordered_json ToJson(const Profile& profile) {
  auto ranks = nlohmann::ordered_json::array();
  for (size_t r = 0; r < profile.ranks.size(); ++r)
    ranks.push_back({{"file", profile.ranks[r].file},
                     {"steps", profile.steps[r].count()},
                     {"step_ms", Millis(profile.steps[r].step())}});
  auto classes = nlohmann::ordered_json::array();
  for (const ClassTimes& times : profile.classes)
    classes.push_back({{"class", times.name},
                       {"launches", times.launches},
                       {"measured_ms", Millis(times.measured)},
                       {"simulated_ms", Millis(times.simulated)}});
  return {{"ranks", ranks},
          {"step_ms", Millis(profile.step())},
          {"simulated_step_ms", Millis(profile.simulated_step())},
          {"classes", classes}};
}

std::string FormatProfilePage(const Profile& profile) {
  nlohmann::ordered_json data = ToJson(profile);
  auto traces = nlohmann::ordered_json::array();
  for (size_t r = 0; r < profile.ranks.size(); ++r) {
    const std::vector<Nanos>& edges = profile.steps[r].edges;
    // The begin of the next step ends one more exactly than the end of the trace.
    size_t last = edges.size() > 2 ? edges.size() - 3 : 0;
    traces.push_back(PageTrace(profile.ranks[r], edges[last], edges[last + 1],
                               "measured: " + profile.ranks[r].file));
  }
  if (profile.simulated)
    traces.push_back(PageTrace(*profile.simulated, Nanos{}, profile.simulated->end(),
                               "simulated: " + profile.simulated->file));
  data["traces"] = std::move(traces);
  std::string scripts;
  for (std::string_view name : {"common", "chart", "table", "profile"}) scripts += PageFile(name);
  std::string page(PageFile("profile_page"));
  ReplaceMark(page, "/*style*/", PageFile("style"));
  ReplaceMark(page, "/*script*/", scripts);
  // Insert user texts last, because they may contain marks.
  ReplaceMark(page, "/*data*/", PageJson(data));
  return page;
}

}  // namespace heddle
