#include "heddle/report/html/page.h"

#include "heddle/report/html/page_files.h"
#include "heddle/report/html/step_data.h"
#include "heddle/report/pipeline_report.h"

namespace heddle {
namespace {

// In page order: later scripts use definitions of earlier ones.
constexpr std::string_view kScripts[] = {"common",  "data",    "chart",    "lanes",
                                         "memory",  "view",    "table",    "tables",
                                         "modules", "compare", "pipeline", "main"};

// The differences between two steps, as the tables show them.
std::string ComparisonData(const StepComparison& comparison) {
  auto list = [](const std::vector<LaunchDifference>& differences) {
    std::string out;
    for (const LaunchDifference& d : differences) {
      out += fmt::format(
          "{}[{},{},{},{},{},{},{},{},{},{},{},{},{},{}]", out.empty() ? "" : ",",
          PageQuoted(Name(d.purpose.phase)), PageQuoted(d.purpose.kind), PageQuoted(d.purpose.over),
          PageQuoted(d.purpose.why), PageQuoted(d.purpose.unit), d.before.count, d.after.count,
          d.before.bytes.value, d.after.bytes.value, d.before.time.value, d.after.time.value,
          d.before.exposed.value, d.after.exposed.value, PageQuoted(d.Why()));
    }
    return "[" + out + "]";
  };
  return fmt::format("{{\"headline\":{},\"purposes\":{},\"units\":{}}}",
                     PageQuoted(comparison.Headline()), list(comparison.by_purpose),
                     list(comparison.by_unit));
}

std::string GraphData(const ReportedGraph& graph) {
  std::string steps;
  for (const ReportedStep& reported : graph)
    steps += (steps.empty() ? "" : ",\n") + FormatStepData(reported.step, reported.passes);
  std::string comparison =
      graph.size() == 2 ? ComparisonData(Compare(graph[0].step, graph[1].step)) : "null";
  return fmt::format("{{\"steps\":[{}],\n\"comparison\":{}}}", steps, comparison);
}

}  // namespace

std::string FormatPage(const std::vector<ReportedGraph>& graphs,
                       const std::optional<price::PipelineSimulation>& pipeline) {
  std::string data;
  for (const ReportedGraph& graph : graphs) data += (data.empty() ? "" : ",\n") + GraphData(graph);
  std::string scripts;
  for (std::string_view name : kScripts) scripts += PageFile(name);
  std::string page(PageFile("page"));
  ReplaceMark(page, "/*style*/", PageFile("style"));
  ReplaceMark(page, "/*script*/", scripts);
  // Insert user texts last, because they may contain marks.
  ReplaceMark(page, "/*data*/",
              fmt::format("{{\"graphs\":[{}],\"pipeline\":{}}}", data,
                          pipeline ? FormatPipelineData(*pipeline) : "null"));
  return page;
}

SimulatedStep StepOf(const search::SimulatedModule& simulated, size_t graph,
                     const price::CostModel& model) {
  return {simulated.name,
          simulated.trained,
          &simulated.module,
          &simulated.module.graphs[graph],
          &model,
          &simulated.simulations[graph]};
}

}  // namespace heddle
