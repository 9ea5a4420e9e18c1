#include "heddle/report/run/run_report.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"
#include "heddle/report/html/page_files.h"
#include "heddle/report/html/step_data.h"

namespace heddle {
namespace {

using RunJson = nlohmann::ordered_json;

// Summarizes the finite values of a column.
struct ColumnSummary {
  double first = NAN;
  double last = NAN;
  double least = INFINITY;
  double most = -INFINITY;
  double sum = 0;
  int64_t count = 0;

  void Add(double value) {
    if (!std::isfinite(value)) return;
    if (count++ == 0) first = value;
    last = value;
    least = std::min(least, value);
    most = std::max(most, value);
    sum += value;
  }
  double mean() const { return sum / static_cast<double>(count); }
};

ColumnSummary SummaryOf(std::span<const double> values) {
  ColumnSummary summary;
  for (double value : values) summary.Add(value);
  return summary;
}

double SecondsOf(const RunLog& run) { return SummaryOf(run.Of("seconds")).sum; }

std::string FormatRun(const RunLog& run) {
  std::string out =
      fmt::format("{}: {}, {} to {}, in {}\n", run.file, Counted(run.steps.size(), "step"),
                  run.steps.front(), run.steps.back(), FormatAs(RunUnit::kSeconds, SecondsOf(run)));
  if (run.cut_line > 0)
    out += fmt::format("line {} is cut off and left out; the run ended while it wrote the line\n",
                       run.cut_line);
  TextTable table({"", "first>", "last>", "least>", "most>", "mean>"});
  for (size_t c = 0; c < RunColumns().size(); ++c) {
    const RunColumn& column = RunColumns()[c];
    ColumnSummary summary = SummaryOf(run.values[c]);
    if (summary.count == 0) continue;
    std::vector<std::string> cells = {std::string(column.title)};
    for (double value : {summary.first, summary.last, summary.least, summary.most, summary.mean()})
      cells.push_back(FormatAs(column.unit, value));
    table.AddRow(std::move(cells));
  }
  return out + "\n" + table.Format();
}

RunJson SummaryJson(const RunLog& run) {
  RunJson metrics = RunJson::object();
  for (size_t c = 0; c < RunColumns().size(); ++c) {
    ColumnSummary summary = SummaryOf(run.values[c]);
    if (summary.count == 0) continue;
    metrics[std::string(RunColumns()[c].key)] = {{"first", summary.first},
                                                 {"last", summary.last},
                                                 {"least", summary.least},
                                                 {"most", summary.most},
                                                 {"mean", summary.mean()}};
  }
  return {{"file", run.file},
          {"steps", run.steps.size()},
          {"first_step", run.steps.front()},
          {"last_step", run.steps.back()},
          {"seconds", SecondsOf(run)},
          {"cut_line", run.cut_line > 0 ? RunJson(run.cut_line) : RunJson()},
          {"metrics", std::move(metrics)}};
}

// --- The page

// The most points of a curve. Each point covers the same number of steps.
constexpr size_t kMostPoints = 2000;

// Six digits are enough to draw, and keep the page small. JSON lacks NaN.
RunJson PagePoint(double value) {
  if (!std::isfinite(value)) return nullptr;
  std::string text = fmt::format("{:.6g}", value);
  double rounded = value;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

RunJson PageRun(const RunLog& run) {
  size_t steps = run.steps.size();
  size_t size = (steps + kMostPoints - 1) / kMostPoints;
  RunJson data = {{"file", run.file}, {"merged", size}};
  for (const char* column : {"step", "first", "time"}) data[column] = RunJson::array();
  const std::vector<double>& seconds = run.Of("seconds");
  double time = 0;
  for (size_t begin = 0; begin < steps; begin += size) {
    size_t end = std::min(begin + size, steps);
    for (size_t s = begin; s < std::min(end, seconds.size()); ++s)
      time += std::isfinite(seconds[s]) ? seconds[s] : 0;
    data["first"].push_back(run.steps[begin]);
    data["step"].push_back(run.steps[end - 1]);
    data["time"].push_back(PagePoint(time));
  }
  data["curves"] = RunJson::object();
  for (size_t c = 0; c < RunColumns().size(); ++c) {
    std::span<const double> values = run.values[c];
    if (values.empty()) continue;
    RunJson curve = {{"mean", RunJson::array()}};
    if (size > 1) curve["least"] = curve["most"] = RunJson::array();
    for (size_t begin = 0; begin < steps; begin += size) {
      ColumnSummary point = SummaryOf(values.subspan(begin, std::min(size, steps - begin)));
      curve["mean"].push_back(PagePoint(point.count > 0 ? point.mean() : NAN));
      if (size == 1) continue;
      curve["least"].push_back(PagePoint(point.least));
      curve["most"].push_back(PagePoint(point.most));
    }
    data["curves"][std::string(RunColumns()[c].key)] = std::move(curve);
  }
  data["samples"] = RunJson::array();
  for (const RunSample& sample : run.samples)
    data["samples"].push_back(
        {{"step", sample.step}, {"prompt", sample.prompt}, {"text", sample.text}});
  data["summary"] = SummaryJson(run);
  return data;
}

}  // namespace

std::string TrainingReport::Headline() const {
  if (!against) return "";
  // The positions of the last common step.
  size_t here = run.steps.size();
  size_t there = against->steps.size();
  while (here > 0 && there > 0 && run.steps[here - 1] != against->steps[there - 1])
    run.steps[here - 1] > against->steps[there - 1] ? --here : --there;
  std::string out = fmt::format("{} and {} have no step in common", run.file, against->file);
  auto loss = [](const RunLog& log, size_t at) {
    const std::vector<double>& losses = log.Of("loss");
    return losses.empty() || !std::isfinite(losses[at - 1])
               ? std::string("no loss")
               : fmt::format("a loss of {:.5g}", losses[at - 1]);
  };
  if (here > 0 && there > 0)
    out = fmt::format("at step {}, {} has {}, and {} has {}", run.steps[here - 1], run.file,
                      loss(run, here), against->file, loss(*against, there));
  double speed = SummaryOf(run.Of("tps")).mean();
  double other = SummaryOf(against->Of("tps")).mean();
  if (!(speed > 0 && other > 0)) return out;
  double change = 100 * (speed / other - 1);
  if (std::abs(change) < 0.05)
    return out + fmt::format("; {} processes as many tokens/s per rank", run.file);
  return out + fmt::format("; {} processes {:.1f} % {} tokens/s per rank", run.file,
                           std::abs(change), change > 0 ? "more" : "fewer");
}

std::string FormatRunReport(const TrainingReport& report) {
  std::string out = FormatRun(report.run);
  if (report.against) out += "\n" + FormatRun(*report.against) + "\n" + report.Headline() + "\n";
  return out;
}

RunJson ToJson(const TrainingReport& report) {
  RunJson out = SummaryJson(report.run);
  if (!report.against) return out;
  out["against"] = SummaryJson(*report.against);
  out["difference"] = {{"headline", report.Headline()}};
  return out;
}

std::string FormatRunPage(const TrainingReport& report) {
  RunJson data = {{"headline", report.Headline()}, {"columns", RunJson::object()}};
  for (const RunColumn& column : RunColumns())
    data["columns"][std::string(column.key)] = {{"title", column.title},
                                                {"unit", Name(column.unit)}};
  data["runs"] = {PageRun(report.run)};
  if (report.against) data["runs"].push_back(PageRun(*report.against));
  std::string scripts;
  for (std::string_view name : {"common", "chart", "table", "run"}) scripts += PageFile(name);
  std::string page(PageFile("run_page"));
  ReplaceMark(page, "/*style*/", PageFile("style"));
  ReplaceMark(page, "/*script*/", scripts);
  // Insert user texts last, because they may contain marks.
  ReplaceMark(page, "/*data*/", PageJson(data));
  return page;
}

}  // namespace heddle
