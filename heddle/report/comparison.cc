#include "heddle/report/comparison.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include <nlohmann/json.hpp>

#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"
#include "heddle/report/sim_report.h"

namespace heddle {
namespace {

Nanos Size(Nanos time) { return {time.value < 0 ? -time.value : time.value}; }

// `3.20 ms less`, `3.20 ms more`
std::string LessOrMore(Nanos less) {
  return fmt::format("{} {}", Format(Size(less)), less.value < 0 ? "more" : "less");
}

std::string Signed(Nanos time) { return (time.value < 0 ? "-" : "") + Format(Size(time)); }

std::string OrNone(Nanos time) { return time.value == 0 ? "none" : Format(time); }

std::vector<LaunchDifference> Differences(const LaunchGroups& before, const LaunchGroups& after) {
  std::set<Purpose> purposes;
  for (const auto& [purpose, sums] : before) purposes.insert(purpose);
  for (const auto& [purpose, sums] : after) purposes.insert(purpose);
  auto find = [](const LaunchGroups& groups, const Purpose& purpose) {
    auto at = groups.find(purpose);
    return at == groups.end() ? LaunchSums() : at->second;
  };
  std::vector<LaunchDifference> out;
  for (const Purpose& purpose : purposes)
    out.push_back({purpose, find(before, purpose), find(after, purpose)});
  return out;
}

// Sorts units of one purpose by their launches.
void SortByLaunch(const std::vector<Launch>& before, const std::vector<Launch>& after,
                  std::vector<LaunchDifference>& differences) {
  std::map<Purpose, size_t> place;
  for (const auto* launches : {&after, &before}) {
    for (const Launch& launch : *launches) place.try_emplace(launch.purpose, place.size());
  }
  auto key = [&](const LaunchDifference& d) {
    return std::tuple(d.purpose.phase, std::string_view(d.purpose.kind),
                      std::string_view(d.purpose.over), std::string_view(d.purpose.why),
                      place.at(d.purpose));
  };
  std::ranges::sort(differences, {}, key);
}

std::string Launches(int64_t count) {
  return fmt::format("{} {}", count, count == 1 ? "launch" : "launches");
}

std::string BothTimes(Nanos before, Nanos after) {
  return fmt::format("{} -> {}", Format(before), Format(after));
}

nlohmann::ordered_json ToJson(const std::vector<LaunchDifference>& differences) {
  auto list = nlohmann::ordered_json::array();
  auto sums = [](const LaunchSums& s) -> nlohmann::ordered_json {
    return {{"count", s.count},
            {"tensors", s.tensors},
            {"bytes", s.bytes.value},
            {"ms", Millis(s.time)},
            {"exposed_ms", Millis(s.exposed)}};
  };
  for (const LaunchDifference& d : differences) {
    list.push_back({{"phase", Name(d.purpose.phase)},
                    {"kind", d.purpose.kind},
                    {"over", d.purpose.over},
                    {"why", d.purpose.why},
                    {"unit", d.purpose.unit},
                    {"before", sums(d.before)},
                    {"after", sums(d.after)},
                    {"saved_ms", Millis(d.saved())},
                    {"because", d.Why()}});
  }
  return list;
}

// `8,192 tokens in 12.30 ms on [dp=8]`
std::string Work(const SimulatedStep& step) {
  const price::Simulation& s = *step.simulation;
  return fmt::format("{} in {} on [{}]",
                     s.tokens ? Counted(*s.tokens, "token") : "an unknown number of tokens",
                     Format(s.timeline.makespan), Format(step.module->mesh));
}

// Compares steps with different numbers of tokens.
std::string SpeedHeadline(const SimulatedStep& before, const SimulatedStep& after) {
  std::string work = fmt::format("{} against {}", Work(after), Work(before));
  const std::optional<double>& a = before.simulation->tokens_per_second;
  const std::optional<double>& b = after.simulation->tokens_per_second;
  if (!a || !b)
    return fmt::format("{} and {} cannot be compared without their tokens (--tokens): {}",
                       after.name, before.name, work);
  double change = 100 * (*b / *a - 1);
  if (std::abs(change) < 0.05)
    return fmt::format("{} processes as many tokens/s as {}: {}", after.name, before.name, work);
  return fmt::format("{} processes {:.1f} % {} tokens/s than {}: {}", after.name, std::abs(change),
                     change < 0 ? "fewer" : "more", before.name, work);
}

// Whether `after` is at least as fast.
bool IsFaster(const StepComparison& comparison) {
  const price::Simulation& a = *comparison.before.simulation;
  const price::Simulation& b = *comparison.after.simulation;
  if (comparison.SameTokens()) return b.timeline.makespan <= a.timeline.makespan;
  return a.tokens_per_second && b.tokens_per_second && *b.tokens_per_second >= *a.tokens_per_second;
}

nlohmann::ordered_json StepToJson(const SimulatedStep& step) {
  nlohmann::ordered_json out = {{"name", step.name}};
  out.update(ToJson(*step.module, *step.graph, *step.model, *step.simulation));
  return out;
}

}  // namespace

std::string LaunchDifference::Why() const {
  std::string out;
  auto add = [&](const std::string& text) { out += (out.empty() ? "" : "; ") + text; };
  Nanos faster = before.time - after.time;
  if (before.count == 0) {
    add("new: " + Launches(after.count));
  } else if (after.count == 0) {
    add("removed");
  } else if (before.count != after.count) {
    add(fmt::format("{} instead of {} {} {}", Launches(after.count), before.count,
                    after.count == 1 ? "takes" : "take", LessOrMore(faster)));
  } else if (faster.value != 0) {
    add(fmt::format("they take {}", LessOrMore(faster)));
  }
  Nanos hidden = after.time - after.exposed;
  Nanos hidden_before = before.time - before.exposed;
  if (after.count > 0 && hidden != hidden_before)
    add(fmt::format("{} overlap compute, {} before", OrNone(hidden), OrNone(hidden_before)));
  if (after.exposed.value > 0) add("exposed by " + FormatReasons(after.by_reason));
  return out;
}

bool StepComparison::SameTokens() const {
  const std::optional<int64_t>& a = before.simulation->tokens;
  const std::optional<int64_t>& b = after.simulation->tokens;
  if (a && b) return *a == *b;
  // Graphs on the same mesh are schedules of the same step.
  return !a && !b && before.module->mesh == after.module->mesh;
}

std::string StepComparison::Headline() const {
  const price::Timeline& a = before.simulation->timeline;
  const price::Timeline& b = after.simulation->timeline;
  if (!SameTokens()) return SpeedHeadline(before, after);
  if (a.makespan == b.makespan)
    return fmt::format("{} takes as long as {}", after.name, before.name);
  std::string times =
      b.makespan.value == 0
          ? ""
          : fmt::format(", {:.2f} times as fast", static_cast<double>(a.makespan.value) /
                                                      static_cast<double>(b.makespan.value));
  // Names both meshes if they differ.
  const bool one_mesh = before.module->mesh == after.module->mesh;
  auto name = [&](const SimulatedStep& step) {
    return one_mesh ? step.name : fmt::format("{} on [{}]", step.name, Format(step.module->mesh));
  };
  std::string out = fmt::format("{} takes {} than {}{}: {} is exposed", name(after),
                                LessOrMore(a.makespan - b.makespan), name(before), times,
                                LessOrMore(a.exposed - b.exposed));
  Nanos compute = a.compute.busy - b.compute.busy;
  if (compute.value != 0) out += fmt::format(", compute takes {}", LessOrMore(compute));
  return out;
}

StepComparison Compare(const SimulatedStep& before, const SimulatedStep& after) {
  std::vector<Launch> a = FindLaunches(*before.module, *before.graph, *before.simulation);
  std::vector<Launch> b = FindLaunches(*after.module, *after.graph, *after.simulation);
  StepComparison out{.before = before,
                     .after = after,
                     .by_purpose = Differences(GroupByPurpose(a), GroupByPurpose(b)),
                     .by_unit = Differences(GroupByUnit(a), GroupByUnit(b))};
  SortByLaunch(a, b, out.by_unit);
  return out;
}

std::string FormatComparison(const StepComparison& comparison, bool color) {
  const price::Simulation& a = *comparison.before.simulation;
  const price::Simulation& b = *comparison.after.simulation;
  const Mesh& mesh_before = comparison.before.module->mesh;
  const Mesh& mesh_after = comparison.after.module->mesh;
  bool faster = IsFaster(comparison);
  std::string out = fmt::format("{}{}{}\n\n", color ? (faster ? kGreen : kRed) : "",
                                comparison.Headline(), color ? kPlain : "");
  TextTable figures({"", comparison.before.name + ">", comparison.after.name + ">"});
  auto row = [&](std::string what, const std::string& before, const std::string& after) {
    figures.AddRow({std::move(what), before, after});
  };
  if (mesh_before != mesh_after)
    row("mesh", fmt::format("[{}]", Format(mesh_before)), fmt::format("[{}]", Format(mesh_after)));
  if (!comparison.SameTokens()) {
    auto count = [](const auto& number) {
      return number ? WithCommas(static_cast<int64_t>(*number)) : "unknown";
    };
    row("tokens", count(a.tokens), count(b.tokens));
    row("tokens/s", count(a.tokens_per_second), count(b.tokens_per_second));
  }
  row("step", Format(a.timeline.makespan), Format(b.timeline.makespan));
  row("compute", Format(a.timeline.compute.busy), Format(b.timeline.compute.busy));
  row("exposed", Format(a.timeline.exposed), Format(b.timeline.exposed));
  row("at least", Format(a.bounds.best()), Format(b.bounds.best()));
  row("peak memory", Format(a.peak), Format(b.peak));
  auto percent = [](const std::optional<double>& mfu) {
    return mfu ? fmt::format("{:.1f} %", 100 * *mfu) : "";
  };
  if (a.mfu || b.mfu) row("MFU", percent(a.mfu), percent(b.mfu));
  out += figures.Format();
  TextTable table({"phase", "collective", "over", "why", "launches>", "time>", "exposed>", "saved>",
                   "because"});
  for (const LaunchDifference& d : comparison.by_purpose) {
    table.AddRow({std::string(Name(d.purpose.phase)), d.purpose.kind, d.purpose.over, d.purpose.why,
                  fmt::format("{} -> {}", d.before.count, d.after.count),
                  BothTimes(d.before.time, d.after.time),
                  BothTimes(d.before.exposed, d.after.exposed), Signed(d.saved()), d.Why()});
  }
  return table.empty() ? out : out + "\n" + table.Format();
}

nlohmann::ordered_json ToJson(const StepComparison& comparison) {
  nlohmann::ordered_json out = StepToJson(comparison.after);
  out["against"] = StepToJson(comparison.before);
  out["difference"] = {{"headline", comparison.Headline()},
                       {"collectives", ToJson(comparison.by_purpose)},
                       {"units", ToJson(comparison.by_unit)}};
  return out;
}

}  // namespace heddle
