#include "heddle/search/search_page.h"

#include <algorithm>

#include "heddle/base/text.h"
#include "heddle/report/html/page_files.h"

namespace heddle {
namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 320;
constexpr double kMargin = 60;

constexpr std::string_view kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}th,td{padding:.3rem .6rem;text-align:right;"
    "border-bottom:1px solid #8884}th:nth-child(-n+2),td:nth-child(-n+2){text-align:left}"
    "pre{overflow-x:auto;background:#8881;padding:.6rem}svg{max-width:100%;height:auto}"
    "text{font-size:12px;fill:currentColor}@media(prefers-color-scheme:dark){"
    "body{background:#181818;color:#ddd}}";

// Speed upwards, memory to the right, both from zero.
std::string Chart(const std::vector<SearchRow>& rows, Bytes budget) {
  double most_tokens = 1;
  auto most_bytes = static_cast<double>(std::max<int64_t>(budget.value, 1));
  for (const SearchRow& row : rows) {
    most_tokens = std::max(most_tokens, row.tokens_per_second);
    most_bytes = std::max(most_bytes, static_cast<double>(row.outcome.peak.value));
  }
  auto x = [&](double bytes) { return kMargin + bytes / most_bytes * (kWidth - 2 * kMargin); };
  auto y = [&](double tokens) {
    return kHeight - kMargin - tokens / most_tokens * (kHeight - 2 * kMargin);
  };
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"tokens per second against peak "
      "memory\">\n",
      kWidth, kHeight);
  out += fmt::format("<path d=\"M{0} {1}V{2}H{3}\" fill=\"none\" stroke=\"currentColor\"/>\n",
                     kMargin, kMargin / 2, kHeight - kMargin, kWidth - kMargin / 2);
  double limit = x(static_cast<double>(budget.value));
  out += fmt::format(
      "<path d=\"M{:.1f} {}V{}\" stroke=\"currentColor\" stroke-dasharray=\"4\"/><text "
      "x=\"{:.1f}\" y=\"{}\" text-anchor=\"end\">budget {}</text>\n",
      limit, kMargin / 2, kHeight - kMargin, limit - 4, kMargin / 2 + 12, Format(budget));
  out +=
      fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">peak memory of a device</text>\n",
                  kWidth / 2, kHeight - kMargin / 3);
  out += fmt::format(
      "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><text x=\"{}\" y=\"{}\" "
      "text-anchor=\"end\">0</text><text x=\"{}\" y=\"{}\">tokens/s</text>\n",
      kMargin - 6, y(most_tokens) + 4, WithCommas(static_cast<int64_t>(most_tokens)), kMargin - 6,
      y(0) + 4, kMargin + 6, kMargin / 2 + 4);
  for (const SearchRow& row : rows) {
    double at_x = x(static_cast<double>(row.outcome.peak.value));
    double at_y = y(row.tokens_per_second);
    bool numbered = !row.name.empty() && row.name[0] >= '0' && row.name[0] <= '9';
    out += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" fill=\"{}\"><title>{}</title></circle><text "
        "x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        at_x, at_y, numbered ? "#2a78d6" : "#c2571a", HtmlText(row.plan), at_x + 8, at_y - 6,
        HtmlText(row.name));
  }
  return out + "</svg>\n";
}

std::string TableOf(const std::vector<SearchRow>& rows) {
  std::string out =
      "<table><thead><tr><th></th><th>plan</th><th>tokens/s</th><th>step</th><th>exposed</th>"
      "<th>peak</th></tr></thead><tbody>\n";
  for (const SearchRow& row : rows) {
    out += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        HtmlText(row.name), HtmlText(row.plan),
        WithCommas(static_cast<int64_t>(row.tokens_per_second)), Format(row.outcome.step),
        Format(row.outcome.exposed), Format(row.outcome.peak));
  }
  return out + "</tbody></table>\n";
}

}  // namespace

std::string FormatSearchPage(const std::string& title, const std::vector<SearchRow>& rows,
                             Bytes budget) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{0}</title><style>{1}</style></head>\n<body>\n"
      "<h1>{0}</h1>\n",
      HtmlText(title), kStyle);
  out += Chart(rows, budget) + TableOf(rows);
  for (const SearchRow& row : rows) {
    out += fmt::format("<details><summary>{}: {}</summary><pre>{}</pre></details>\n",
                       HtmlText(row.name), HtmlText(row.plan), HtmlText(row.text));
  }
  return out + "</body></html>\n";
}

}  // namespace heddle
