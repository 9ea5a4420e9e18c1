#include "heddle/report/profile/profile.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"
#include "heddle/report/html/page_files.h"
#include "heddle/report/html/step_data.h"

namespace heddle {
namespace {

// The first step of `steps_FIRST-LAST_rank_N.json`; -1 for other names.
int64_t FirstStepOf(const std::string& path) {
  constexpr std::string_view kPrefix = "steps_";
  std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
  int64_t step = -1;
  if (name.starts_with(kPrefix))
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  return step;
}

// The traces of the latest steps, in order of ranks, and the names of the others.
struct FolderOfTraces {
  std::vector<std::string> paths;
  std::vector<std::string> left_out;
};
FolderOfTraces TracesIn(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  int64_t latest = -1;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::string name = entry.path().filename();
    if (!name.starts_with("steps_") || !name.ends_with(".json")) continue;
    paths.push_back(entry.path());
    latest = std::max(latest, FirstStepOf(paths.back()));
  }
  // Rank 2 before rank 10.
  std::ranges::sort(paths, [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  FolderOfTraces out;
  for (std::string& path : paths) {
    if (FirstStepOf(path) == latest)
      out.paths.push_back(std::move(path));
    else
      out.left_out.push_back(path.substr(path.rfind('/') + 1));
  }
  return out;
}

// Whether a folder has the traces of all ranks of one run. A rank that was killed has none.
Status CheckRanks(const std::string& folder, const std::vector<price::Trace>& traces) {
  const std::optional<price::TracedRank>& first = traces[0].rank;
  // PyTorch's profiler does not state the rank of a single process.
  if (!first) return Done{};
  std::set<int64_t> present;
  for (const price::Trace& trace : traces) {
    bool same =
        trace.rank && trace.rank->run == first->run && trace.rank->world_size == first->world_size;
    if (!same)
      return Error(Diag::kFileRead,
                   "`{}`: `{}` and `{}` are of different runs; profile again, or name one file",
                   folder, traces[0].file, trace.file);
    if (!present.insert(trace.rank->rank).second)
      return Error(Diag::kFileRead, "`{}` has two traces of rank {}; `{}` is the second", folder,
                   trace.rank->rank, trace.file);
  }
  std::vector<int64_t> missing;
  for (int64_t rank = 0; rank < first->world_size; ++rank) {
    if (!present.contains(rank)) missing.push_back(rank);
  }
  if (missing.empty()) return Done{};
  constexpr size_t kShown = 8;
  std::string more = missing.size() > kShown ? ", ..." : "";
  if (missing.size() > kShown) missing.resize(kShown);
  return Error(Diag::kFileRead,
               "`{}` has traces of {} of {} ranks, and none of rank {}{}; profile again, or name "
               "one file",
               folder, present.size(), first->world_size, fmt::join(missing, ", "), more);
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
      // The host does not know when a GPU waits.
      if (span.kernel_class == "wait" && !sums.contains("wait")) continue;
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

nlohmann::ordered_json OrNull(std::optional<Bytes> bytes) {
  return bytes ? nlohmann::ordered_json(bytes->value) : nlohmann::ordered_json();
}

// The spans and the memory of a step as columns, and its lanes. The page shows the step from
// `shift` on.
nlohmann::ordered_json PageTrace(const price::Trace& trace, Nanos from, Nanos to, Nanos shift,
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
    data["begin"].push_back((span.begin - from + shift).value);
    data["end"].push_back((span.end - from + shift).value);
    data["lane"].push_back(span.lane);
    data["name"].push_back(number(span.name));
    data["kind"].push_back(number(span.kernel_class));
  }
  data["strings"] = texts;
  data["memory"] = {{"time", nlohmann::ordered_json::array()},
                    {"bytes", nlohmann::ordered_json::array()}};
  std::optional<Bytes> before;
  auto add = [&](Nanos time, Bytes bytes) {
    data["memory"]["time"].push_back((time - from + shift).value);
    data["memory"]["bytes"].push_back(bytes.value);
  };
  for (const price::TracedMemory& change : trace.memory) {
    if (change.time > to) break;
    if (change.time > from) {
      if (data["memory"]["time"].empty() && before) add(from, *before);
      add(change.time, change.bytes);
    }
    before = change.bytes;
  }
  return data;
}

// When the shown step of each rank begins after that of the first, on the clock of the machine.
// Zeros if the clocks of the ranks do not agree: then the steps do not overlap.
std::vector<Nanos> ShiftsOf(const Profile& profile,
                            const std::vector<std::pair<Nanos, Nanos>>& shown) {
  std::vector<Nanos> begins;
  for (size_t r = 0; r < shown.size(); ++r)
    begins.push_back(profile.ranks[r].origin + shown[r].first);
  Nanos first = *std::ranges::min_element(begins);
  for (size_t r = 0; r < shown.size(); ++r) {
    begins[r] = begins[r] - first;
    if (begins[r] > shown[r].second - shown[r].first) return std::vector<Nanos>(shown.size());
  }
  return begins;
}

}  // namespace

Nanos Profile::step() const {
  Nanos slowest;
  for (const price::TracedSteps& rank : steps) slowest = std::max(slowest, rank.step());
  return slowest;
}

std::optional<Bytes> Profile::peak_memory() const {
  std::optional<Bytes> peak;
  for (const price::Trace& rank : ranks) peak = std::max(peak, rank.PeakMemory());
  return peak;
}

std::optional<Nanos> Profile::simulated_step() const {
  return simulated ? std::optional(simulated->end()) : std::nullopt;
}

Result<Profile> LoadProfile(const std::string& path, const std::string& simulated) {
  Profile profile;
  std::string prediction = simulated;
  std::vector<std::string> files = {path};
  bool is_folder = IsDirectory(path);
  if (is_folder) {
    FolderOfTraces found = TracesIn(path);
    files = std::move(found.paths);
    profile.left_out = std::move(found.left_out);
    if (files.empty())
      return Error(Diag::kFileRead,
                   "`{}` has no traces (steps_*.json) and no metrics.jsonl; `heddle train` writes "
                   "traces with --profile, and metrics with --metrics.jsonl",
                   path);
    std::string beside = fmt::format("{}/{}", path, kSimulatedTrace);
    std::error_code error;
    if (prediction.empty() && std::filesystem::exists(beside, error)) prediction = beside;
  }
  for (const std::string& file : files) {
    HEDDLE_TRY(price::Trace trace, price::ReadTrace(file));
    profile.steps.push_back(price::FindSteps(trace));
    profile.ranks.push_back(std::move(trace));
  }
  if (is_folder) HEDDLE_RETURN_IF_ERROR(CheckRanks(path, profile.ranks));
  if (!prediction.empty()) {
    HEDDLE_TRY(profile.simulated, price::ReadTrace(prediction));
  }
  SumClasses(profile);
  return profile;
}

std::string FormatProfile(const Profile& profile) {
  std::string out;
  for (const std::string& name : profile.left_out)
    out += fmt::format("{}: left out, because there are later steps\n", name);
  for (size_t r = 0; r < profile.ranks.size(); ++r) {
    const price::Trace& rank = profile.ranks[r];
    std::optional<Bytes> peak = rank.PeakMemory();
    out += fmt::format("{}: {} of {}{}\n", rank.file,
                       Counted(static_cast<int64_t>(profile.steps[r].count()), "step"),
                       Format(profile.steps[r].step()),
                       peak ? fmt::format(", at most {}", Format(*peak)) : "");
  }
  std::optional<Nanos> simulated = profile.simulated_step();
  if (simulated) {
    std::optional<Bytes> peak = profile.simulated->PeakMemory();
    out += fmt::format("{}: a step of {}, {}{}\n", profile.simulated->file, Format(*simulated),
                       ErrorOf(profile.step(), simulated),
                       peak ? fmt::format(", at most {}", Format(*peak)) : "");
  }
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
                     {"step_ms", Millis(profile.steps[r].step())},
                     {"peak_bytes", OrNull(profile.ranks[r].PeakMemory())}});
  auto classes = nlohmann::ordered_json::array();
  for (const ClassTimes& times : profile.classes)
    classes.push_back({{"class", times.name},
                       {"launches", times.launches},
                       {"measured_ms", Millis(times.measured)},
                       {"simulated_ms", Millis(times.simulated)}});
  return {{"ranks", ranks},
          {"step_ms", Millis(profile.step())},
          {"simulated_step_ms", Millis(profile.simulated_step())},
          {"peak_bytes", OrNull(profile.peak_memory())},
          {"simulated_peak_bytes",
           OrNull(profile.simulated ? profile.simulated->PeakMemory() : std::nullopt)},
          {"classes", classes}};
}

std::string FormatProfilePage(const Profile& profile) {
  nlohmann::ordered_json data = ToJson(profile);
  auto traces = nlohmann::ordered_json::array();
  std::vector<std::pair<Nanos, Nanos>> shown;
  for (const price::TracedSteps& steps : profile.steps) {
    // The begin of the next step ends one more exactly than the end of the trace.
    size_t last = steps.count() > 1 ? steps.count() - 2 : 0;
    shown.emplace_back(steps.edges[last], steps.edges[last + 1]);
  }
  std::vector<Nanos> shifts = ShiftsOf(profile, shown);
  for (size_t r = 0; r < profile.ranks.size(); ++r)
    traces.push_back(PageTrace(profile.ranks[r], shown[r].first, shown[r].second, shifts[r],
                               "measured: " + profile.ranks[r].file));
  if (profile.simulated)
    traces.push_back(PageTrace(*profile.simulated, Nanos{}, profile.simulated->end(), Nanos{},
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
