#include "heddle/report/sim_report.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"
#include "heddle/report/launches.h"

namespace heddle {
namespace {

constexpr size_t kBarWidth = 40;
constexpr size_t kUnknownShown = 5;

double ShareOf(Nanos part, Nanos whole) {
  return whole.value == 0 ? 0 : static_cast<double>(part.value) / static_cast<double>(whole.value);
}

class Summary {
 public:
  Summary(const Module& module, const Graph& graph, const price::CostModel& model,
          const price::Simulation& s, bool color)
      : module_(module), graph_(graph), model_(model), s_(s), color_(color) {}

  std::string Write() {
    const price::Timeline& t = s_.timeline;
    out_ =
        fmt::format("@{} on {}: {} on {}{}; collectives by the model {}{}\n", graph_.name(),
                    model_.cluster().name, Counted(s_.ranks, "rank"), Counted(s_.nodes, "node"),
                    Run(), Name(model_.options().collectives),
                    model_.options().rules.author.empty()
                        ? ""
                        : fmt::format(", timeline by {}'s rules", model_.options().rules.author));
    if (s_.whole)
      Line("whole step", s_.whole->time,
           fmt::format("{} micro-batches; below, the last of them", s_.whole->micro_batches));
    Line("step", t.makespan,
         Bar(t.compute.busy, {}, kGreen) + Bar(t.exposed, t.compute.busy, kRed));
    if (auto range = model_.RangeOf(t.makespan); range && t.makespan.value > 0)
      Text("  expected", fmt::format("{} to {}", Format(range->low), Format(range->high)));
    if (!t.streams.empty()) Overlap();
    if (s_.tokens_per_second) {
      Text("tokens/s", fmt::format("{}, {} on each device",
                                   WithCommas(static_cast<int64_t>(*s_.tokens_per_second)),
                                   WithCommas(static_cast<int64_t>(
                                       *s_.tokens_per_second / static_cast<double>(s_.ranks)))));
    }
    if (s_.mfu) Text("MFU", fmt::format("{:.1f} %", 100 * *s_.mfu));
    Memory();
    Streams();
    Collectives();
    Measured();
    return std::move(out_);
  }

 private:
  // The execution, unless it is Heddle's own.
  std::string Run() const {
    switch (model_.options().execution) {
      case price::Execution::kHeddle: return "";
      case price::Execution::kEager: return ", eager PyTorch";
      case price::Execution::kCompiled: return ", torch.compile";
    }
    return "";
  }
  static std::string Counted(int64_t n, std::string_view what) {
    return fmt::format("{} {}{}", WithCommas(n), what, n == 1 ? "" : "s");
  }

  // Characters of a bar of length `time`, where the whole width is the step.
  size_t Length(Nanos time) const {
    return static_cast<size_t>(ShareOf(time, s_.timeline.makespan) * kBarWidth + 0.5);
  }
  // A bar that starts at `begin`.
  std::string Bar(Nanos time, Nanos begin, const char* color) const {
    size_t length = Length(begin + time) - Length(begin);
    std::string bar;
    for (size_t i = 0; i < length; ++i) bar += "█";
    return color_ && length > 0 ? color + bar + kPlain : bar;
  }

  void Text(std::string_view what, const std::string& text) {
    out_ += fmt::format("{:<13}  {}\n", what, text);
  }
  void Line(std::string_view what, Nanos time, const std::string& rest) {
    std::string line = fmt::format("{:<13}  {:>9}  {}", what, Format(time), rest);
    line.erase(line.find_last_not_of(' ') + 1);
    out_ += line + "\n";
  }

  void Overlap() {
    const price::Timeline& t = s_.timeline;
    Line("  compute", t.compute.busy, Bar(t.compute.busy, {}, kGreen));
    Line("  exposed", t.exposed,
         std::string(Length(t.compute.busy), ' ') + Bar(t.exposed, t.compute.busy, kRed) +
             fmt::format(" {:.1f} %", 100 * ShareOf(t.exposed, t.makespan)));
    Line("at least", s_.bounds.best(),
         Bar(s_.bounds.best(), {}, kGreen) + " " + std::string(NameOfBest(s_.bounds)));
    Text("critical path", fmt::format("{} of compute, {} of collectives", Format(s_.path.compute),
                                      Format(s_.path.collective)));
  }

  void Memory() {
    std::string where = "the start";
    if (!s_.timeline.order.empty())
      where = NameOf(graph_, s_.timeline.order[s_.timeline.peak_position]);
    bool fits = s_.peak <= s_.memory_cap;
    std::string text = fmt::format("{} of {}", Format(s_.peak), Format(s_.memory_cap));
    bool differs = s_.peak != s_.timeline.peak;
    if (s_.program && differs)
      text += fmt::format(" with Heddle's kernels; values {}", Format(s_.timeline.peak));
    text += " at " + where;
    if (!s_.program && differs) text += fmt::format(", {} of it values", Format(s_.timeline.peak));
    if (!fits) text += fmt::format("; {}does not fit{}", color_ ? kRed : "", color_ ? kPlain : "");
    Text("peak memory", text);
  }

  void Streams() {
    if (s_.timeline.streams.empty()) return;
    TextTable table({"stream", "busy>", "exposed>", ""});
    auto row = [&](const std::string& name, const price::StreamTimes& times, Nanos exposed) {
      table.AddRow({name, Format(times.busy), exposed.value == 0 ? "" : Format(exposed),
                    Bar(times.busy, {}, kGreen)});
    };
    row("compute", s_.timeline.compute, {});
    for (size_t i = 0; i < s_.timeline.streams.size(); ++i)
      row(s_.graph.streams()[i], s_.timeline.streams[i], s_.timeline.streams[i].exposed);
    out_ += "\n" + table.Format();
  }

  void Collectives() {
    TextTable table({"phase", "collective", "over", "why", "launches>", "bytes>", "time>",
                     "exposed>", "because"});
    for (const auto& [key, group] : GroupByPurpose(FindLaunches(module_, graph_, s_))) {
      table.AddRow({std::string(Name(key.phase)), key.kind, key.over, key.why,
                    WithCommas(group.count), Format(group.bytes), Format(group.time),
                    group.exposed.value == 0 ? "" : Format(group.exposed),
                    FormatReasons(group.by_reason)});
    }
    if (!table.empty()) out_ += "\n" + table.Format();
  }

  void Measured() {
    if (model_.measured() == nullptr) return;
    const price::MeasuredUse& use = s_.costs.measured;
    std::string text;
    auto add = [&](const price::MeasuredUse::Count& count, std::string_view what) {
      if (count.given > 0)
        text += fmt::format("{}{} of {} {}", text.empty() ? "" : ", ",
                            WithCommas(static_cast<int64_t>(count.used)),
                            WithCommas(static_cast<int64_t>(count.given)), what);
    };
    add(use.ops, "ops");
    add(use.nodes, "nodes");
    add(use.curves, "curves");
    out_ += fmt::format("\nof {}, {} were used\n", model_.measured()->file,
                        text.empty() ? "no times" : text);
    for (size_t i = 0; i < std::min(kUnknownShown, use.unknown_nodes.size()); ++i)
      out_ += fmt::format("  no node is called %{}\n", use.unknown_nodes[i]);
    if (use.unknown_nodes.size() > kUnknownShown)
      out_ += fmt::format("  nor like {} more\n", use.unknown_nodes.size() - kUnknownShown);
  }

  const Module& module_;
  const Graph& graph_;
  const price::CostModel& model_;
  const price::Simulation& s_;
  bool color_;
  std::string out_;
};

}  // namespace

std::string FormatSimulation(const Module& module, const Graph& graph,
                             const price::CostModel& model, const price::Simulation& simulation,
                             bool color) {
  return Summary(module, graph, model, simulation, color).Write();
}

nlohmann::ordered_json ToJson(const Module& module, const Graph& graph,
                              const price::CostModel& model, const price::Simulation& s) {
  using nlohmann::ordered_json;
  const price::Timeline& t = s.timeline;
  auto streams = ordered_json::array();
  auto stream = [&](const std::string& name, const price::StreamTimes& times) {
    streams.push_back(
        {{"name", name}, {"busy_ms", Millis(times.busy)}, {"exposed_ms", Millis(times.exposed)}});
  };
  stream("compute", t.compute);
  for (size_t i = 0; i < t.streams.size(); ++i) stream(s.graph.streams()[i], t.streams[i]);
  auto collectives = ordered_json::array();
  for (const auto& [key, group] : GroupByPurpose(FindLaunches(module, graph, s)))
    collectives.push_back(ToJson(key, group));
  auto optional = [](const std::optional<double>& number) {
    return number ? ordered_json(*number) : ordered_json();
  };
  auto measured = ordered_json();
  if (model.measured() != nullptr) {
    const price::MeasuredUse& use = s.costs.measured;
    auto count = [](const price::MeasuredUse::Count& c) {
      return ordered_json{{"used", c.used}, {"given", c.given}};
    };
    measured = {{"ops", count(use.ops)},
                {"nodes", count(use.nodes)},
                {"curves", count(use.curves)},
                {"unknown_nodes", use.unknown_nodes}};
  }
  std::optional<price::CostModel::StepRange> range =
      model.RangeOf(s.whole ? s.whole->time : t.makespan);
  auto bound = [&](Nanos price::CostModel::StepRange::*end) {
    return range ? ordered_json(Millis((*range).*end)) : ordered_json();
  };
  ordered_json json = {
      {"graph", graph.name()},
      {"cluster", model.cluster().name},
      {"cluster_nodes", s.nodes},
      {"ranks", s.ranks},
      {"model", Name(model.options().collectives)},
      {"execution", Name(model.options().execution)},
      {"makespan_ms", Millis(t.makespan)},
      {"step_ms", Millis(t.makespan)},
      {"step_ms_low", bound(&price::CostModel::StepRange::low)},
      {"step_ms_high", bound(&price::CostModel::StepRange::high)},
      {"host_ms", Millis(s.costs.host)},
      {"compute_ms", Millis(t.compute.busy)},
      {"exposed_ms", Millis(t.exposed)},
      {"peak_bytes", s.peak.value},
      {"value_peak_bytes", t.peak.value},
      {"memory_bytes", s.memory_cap.value},
      {"lower_bound_ms", Millis(s.bounds.best())},
      {"lower_bounds_ms",
       {{"compute", Millis(s.bounds.compute)},
        {"stream", Millis(s.bounds.stream)},
        {"path", Millis(s.bounds.path)},
        {"windows", Millis(s.bounds.windows)}}},
      {"critical_path_ms",
       {{"compute", Millis(s.path.compute)}, {"collectives", Millis(s.path.collective)}}},
      {"tokens_per_second", optional(s.tokens_per_second)},
      {"mfu", optional(s.mfu)},
      {"streams", streams},
      {"collectives", collectives},
      {"measured", measured}};
  if (s.whole) {
    json["micro_batches"] = s.whole->micro_batches;
    json["step_ms"] = Millis(s.whole->time);
    json["exposed_ms"] = Millis(s.whole->exposed);
  }
  // `compute_ms` includes launches; other simulators count them separately.
  if (s.costs.launches != Nanos{}) json["launch_ms"] = Millis(s.costs.launches);
  return json;
}

std::string FormatTimeline(const Graph& graph, const price::Simulation& s) {
  struct Row {
    Nanos begin;
    std::vector<std::string> cells;
  };
  std::vector<Row> rows;
  auto micros = [](Nanos time) {
    return fmt::format("{}.{:03}", time.value / 1000, time.value % 1000);
  };
  auto add = [&](NodeId id, const std::string& stream, Nanos begin, Nanos end, Bytes live,
                 const std::string& note) {
    if (begin == end) return;
    rows.push_back({begin,
                    {micros(begin), micros(end), stream, NameOf(graph, id),
                     live.value < 0 ? "" : WithCommas(live.value), note}});
  };
  for (size_t position = 0; position < s.timeline.order.size(); ++position) {
    NodeId id = s.timeline.order[position];
    const price::NodeTimes& times = s.timeline.nodes[id.index()];
    const price::Task& task = s.graph[id];
    Bytes live = s.timeline.live[position];
    if (task.kind == price::Task::Kind::kStart) {
      const price::CollectiveTimes& c =
          s.timeline.collectives[s.timeline.collective_of[id.index()]];
      std::string note;
      if (c.queued.value > 0) note += fmt::format("launched at {}", micros(times.reached));
      if (c.shared.value > 0)
        note += fmt::format("{}{} longer", note.empty() ? "" : ", ", micros(c.shared));
      // Without a wait, its remaining time at the end is exposed.
      if (!c.wait && c.exposed.value > 0)
        note += fmt::format("{}{} exposed: {}", note.empty() ? "" : ", ", micros(c.exposed),
                            FormatReasons(s.why[s.timeline.collective_of[id.index()]].by_reason));
      add(id, "compute", times.reached, times.left, live, "launch");
      add(id, s.graph.streams()[task.stream], times.begin, times.end, {-1}, note);
      continue;
    }
    if (task.kind == price::Task::Kind::kWait && times.begin > times.reached)
      add(id, "compute", times.reached, times.begin, live,
          "exposed: " + FormatReasons(s.why[s.timeline.collective_of[task.start]].by_reason));
    add(id, "compute", times.begin, times.end, live,
        task.kind == price::Task::Kind::kWait ? "after the wait" : "");
  }
  std::ranges::stable_sort(rows, {}, &Row::begin);
  TextTable table({"from us>", "to us>", "stream", "node", "alive>", ""});
  for (Row& row : rows) table.AddRow(std::move(row.cells));
  return table.Format();
}

}  // namespace heddle
