#include "heddle/report/html/curve_page.h"

#include <algorithm>

#include <fmt/core.h>

#include "heddle/report/html/page_files.h"

namespace heddle {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 420;
constexpr double kLeft = 90;
constexpr double kRight = 24;
constexpr double kTop = 20;
constexpr double kBottom = 56;
constexpr int kTicks = 5;

// Maps a range of numbers to a range of pixels.
struct Scale {
  double least = 0;
  double most = 1;
  double from = 0;
  double to = 1;

  double at(double value) const { return from + (value - least) / (most - least) * (to - from); }
  double tick(int i) const { return least + (most - least) * i / kTicks; }
};

template <typename Measure>
Scale ScaleOf(const std::vector<CurvePoint>& points, double from, double to, Measure measure) {
  Scale scale{.least = 1e300, .most = 0, .from = from, .to = to};
  for (const CurvePoint& point : points) {
    auto value = static_cast<double>(measure(point));
    scale.least = std::min(scale.least, value);
    scale.most = std::max(scale.most, value);
  }
  double room = std::max((scale.most - scale.least) * 0.05, scale.most * 1e-3 + 1);
  scale.least = std::max(0.0, scale.least - room);
  scale.most += room;
  return scale;
}

std::string DrawAxes(const Scale& x, const Scale& y) {
  std::string out;
  for (int i = 0; i <= kTicks; ++i) {
    double px = x.at(x.tick(i));
    double py = y.at(y.tick(i));
    out += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" class=\"grid\"/>"
        "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\">{4}</text>\n",
        px, kTop, kHeight - kBottom, kHeight - kBottom + 18,
        Format(Bytes{static_cast<int64_t>(x.tick(i))}));
    out += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\" class=\"grid\"/>"
        "<text x=\"{3:.1f}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        kLeft, py, kWidth - kRight, kLeft - 8, py + 4,
        Format(Nanos{static_cast<int64_t>(y.tick(i))}));
  }
  out += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" class=\"name\">peak memory of a "
      "rank</text>\n<text x=\"14\" y=\"{:.1f}\" text-anchor=\"middle\" class=\"name\" "
      "transform=\"rotate(-90 14 {:.1f})\">step</text>\n",
      (kLeft + kWidth - kRight) / 2, kHeight - 12, kHeight / 2, kHeight / 2);
  return out;
}

std::string Plot(const std::vector<CurvePoint>& points) {
  Scale x = ScaleOf(points, kLeft, kWidth - kRight,
                    [](const CurvePoint& point) { return point.peak.value; });
  Scale y = ScaleOf(points, kHeight - kBottom, kTop,
                    [](const CurvePoint& point) { return point.step.value; });
  std::string line;
  std::string dots;
  for (const CurvePoint& point : points) {
    double px = x.at(static_cast<double>(point.peak.value));
    double py = y.at(static_cast<double>(point.step.value));
    // A budget between two points gets the smaller one.
    line += line.empty() ? fmt::format("M{:.1f} {:.1f}", px, py)
                         : fmt::format("H{:.1f}V{:.1f}", px, py);
    dots += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\" tabindex=\"0\"><title>{}: {}, "
        "{}</title></circle>\n",
        px, py, HtmlText(point.name), Format(point.peak), Format(point.step));
  }
  return fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"Step time against peak "
      "memory\">\n{}<path d=\"{}\" class=\"curve\"/>\n{}</svg>\n",
      kWidth, kHeight, DrawAxes(x, y), line, dots);
}

std::string PointTable(const MemoryCurve& curve) {
  std::string out = "<table><thead><tr><th>policy</th><th>peak</th><th>step</th>";
  for (const std::string& column : curve.columns)
    out += fmt::format("<th>{}</th>", HtmlText(column));
  out += "</tr></thead><tbody>\n";
  for (const CurvePoint& point : curve.points) {
    out += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td>", HtmlText(point.name),
                       Format(point.peak), Format(point.step));
    for (const std::string& detail : point.details)
      out += fmt::format("<td>{}</td>", HtmlText(detail));
    out += "</tr>\n";
  }
  return out + "</tbody></table>\n";
}

}  // namespace

std::string FormatCurvePage(const MemoryCurve& curve) {
  std::string page(PageFile("curve"));
  ReplaceMark(page, "/*style*/", PageFile("style"));
  std::string body = Plot(curve.points) + PointTable(curve);
  ReplaceMark(page, "<!--title-->", HtmlText(curve.title));
  // Insert user texts last, because they may contain marks.
  ReplaceMark(page, "<!--curve-->", body);
  return page;
}

}  // namespace heddle
