#include "heddle/report/html/search_page.h"

#include <cstdlib>

#include <fmt/ranges.h>

#include "heddle/core/base/text.h"
#include "heddle/report/html/page_files.h"
#include "heddle/report/html/step_data.h"

namespace heddle {
namespace {

// In dependence order: later scripts use definitions of earlier ones.
constexpr std::string_view kSearchScripts[] = {"common", "table", "search"};

std::string RowData(const SearchRow& row) {
  return fmt::format(
      "{{\"name\":{},\"plan\":{},\"tokens_per_second\":{},\"step\":{},\"exposed\":{},\"peak\":{},"
      "\"command\":{},\"text\":{},\"published\":{}}}",
      PageQuoted(row.name), PageQuoted(Format(row.point)), row.tokens_per_second,
      row.outcome.step.value, row.outcome.exposed.value, row.outcome.peak.value,
      PageQuoted(row.command), PageQuoted(row.text), row.published);
}

// The differences between the plans that explain other compute times; empty if there are none.
std::string WhyCompute(const search::SearchPoint& first, const search::SearchPoint& second) {
  const search::Arrangement& a = first.arrangement;
  const search::Arrangement& b = second.arrangement;
  auto recomputes = [](const std::string& policy) {
    return policy == "none" ? std::string("nothing") : policy;
  };
  std::vector<std::string> why;
  if (first.policy != second.policy)
    why.push_back(fmt::format("backward recomputes {} instead of {}", recomputes(first.policy),
                              recomputes(second.policy)));
  if (a.micro_batches != b.micro_batches)
    why.push_back(
        fmt::format("it runs {} instead of {} micro-batches", a.micro_batches, b.micro_batches));
  if (a.tensor != b.tensor)
    why.push_back(fmt::format("{} instead of {} share each layer (tensor parallelism)",
                              Counted(a.tensor, "rank"), b.tensor));
  if (a.pipeline != b.pipeline)
    why.push_back(fmt::format("{} instead of {} share the layers (pipeline)",
                              Counted(a.pipeline, "rank"), b.pipeline));
  if (a.context != b.context)
    why.push_back(fmt::format("{} instead of {} share each sequence (context parallelism)",
                              Counted(a.context, "rank"), b.context));
  return why.empty() ? "" : fmt::format(" because {}", fmt::join(why, " and "));
}

std::string LessOrMore(int64_t less, const std::string& size) {
  return fmt::format("{} {}", size, less < 0 ? "more" : "less");
}

Nanos Size(Nanos time) { return {time.value < 0 ? -time.value : time.value}; }

}  // namespace

std::string WhyFaster(const SearchRow& first, const SearchRow& second) {
  const search::StepOutcome& a = first.outcome;
  const search::StepOutcome& b = second.outcome;
  const Nanos exposed = b.exposed - a.exposed;
  const Nanos compute = (b.step - b.exposed) - (a.step - a.exposed);
  std::vector<std::string> reasons;
  if (exposed.value != 0)
    reasons.push_back(LessOrMore(exposed.value, Format(Size(exposed))) + " exposed communication");
  if (compute.value != 0)
    reasons.push_back("compute takes " + LessOrMore(compute.value, Format(Size(compute))) +
                      WhyCompute(first.point, second.point));
  // The larger reason first.
  if (reasons.size() == 2 && compute > exposed) std::swap(reasons[0], reasons[1]);
  std::string out =
      fmt::format("Plan {} processes {:.1f} % more tokens/s than plan {}", first.name,
                  100 * (first.tokens_per_second / second.tokens_per_second - 1), second.name);
  if (!reasons.empty()) out += fmt::format(": {}", fmt::join(reasons, "; "));
  const Bytes more = a.peak - b.peak;
  if (more.value > 0) out += fmt::format(". It needs {} more memory", Format(more));
  if (more.value < 0) out += fmt::format(". It needs {} less memory", Format(b.peak - a.peak));
  return out + ".";
}

std::string WhyMethod(const search::MethodChoice& methods) {
  const search::StepOutcome& a = methods.chosen.outcome;
  const search::StepOutcome& b = methods.other.outcome;
  const Nanos compute = (b.step - b.exposed) - (a.step - a.exposed);
  const double longer = 100 * (Seconds(b.step) / Seconds(a.step) - 1);
  const Bytes more = b.peak - a.peak;
  std::string out = fmt::format(
      "{} moves {} for context parallelism, of which {} is exposed. With {}, it would move {}, {} "
      "exposed",
      Format(methods.chosen.point), Format(a.context.bytes), Format(a.context.exposed),
      MethodOf(methods.other.point.arrangement), Format(b.context.bytes),
      Format(b.context.exposed));
  if (compute.value != 0)
    out +=
        fmt::format(", compute would take {}", LessOrMore(-compute.value, Format(Size(compute))));
  out +=
      fmt::format(", and the step {:.1f} % {}", std::abs(longer), longer < 0 ? "less" : "longer");
  if (more.value != 0)
    out += fmt::format(", with {} {} memory", Format(Bytes{std::abs(more.value)}),
                       more.value > 0 ? "more" : "less");
  return out + ".";
}

std::string WhyPipeline(const search::SearchResult& result) {
  if (!result.pipeline) return "";
  const auto& [best, simulated] = *result.pipeline;
  const search::TriedPoint& first = result.front[0];
  const double more = 100 * (Seconds(best.step) / Seconds(first.outcome.step) - 1);
  const std::string than =
      first.point == best.point
          ? " and is plan 1"
          : fmt::format(", {:.1f} % {} than plan 1", std::abs(more), more < 0 ? "less" : "more");
  return fmt::format(
      "The best pipeline, {}, {} {}{}. It needs {}. No order of its work takes less than {} (gap "
      "{:.1f} %).",
      Format(best.point), simulated ? "takes" : "is predicted to take", Format(best.step), than,
      Format(best.peak), Format(best.bound), 100 * search::GapOf(best.step, best.bound));
}

std::string FormatSearchPage(const SearchPage& page) {
  std::string plans;
  for (const SearchRow& row : page.rows) plans += (plans.empty() ? "" : ",\n") + RowData(row);
  const bool compares = page.rows.size() > 1 && !page.rows[1].published;
  std::string why = compares ? WhyFaster(page.rows[0], page.rows[1]) : "";
  if (page.methods) why += (why.empty() ? "" : " ") + WhyMethod(*page.methods);
  if (!page.pipeline.empty()) why += (why.empty() ? "" : " ") + page.pipeline;
  std::string data = fmt::format(
      "{{\"model\":{},\"cluster\":{},\"devices\":{},\"sequences\":{},\"seq_len\":{},\"budget\":{},"
      "\"points\":{},\"tried\":{},\"pruned\":{},\"why\":{},\"plans\":[{}]}}",
      PageQuoted(page.model), PageQuoted(page.cluster), page.devices, page.sequences, page.seq_len,
      page.budget.value, page.points, page.tried, page.pruned, PageQuoted(why), plans);
  std::string scripts;
  for (std::string_view name : kSearchScripts) scripts += PageFile(name);
  std::string html(PageFile("search_page"));
  ReplaceMark(html, "/*style*/", PageFile("style"));
  ReplaceMark(html, "/*script*/", scripts);
  // Insert user texts last, because they may contain marks.
  ReplaceMark(html, "/*data*/", data);
  return html;
}

}  // namespace heddle
