#include "heddle/report/pipeline_picture.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/core.h>

namespace heddle {
namespace {

bool HasChunks(const PipelineSchedule& schedule) {
  return schedule.stages > static_cast<int64_t>(schedule.ranks.size());
}

// The place of each stage among those of its rank.
std::vector<int32_t> ChunksOfStages(const PipelineSchedule& schedule) {
  std::vector<int32_t> chunks;
  std::vector<int32_t> counts(schedule.ranks.size());
  for (int32_t rank : RanksOfStages(schedule))
    chunks.push_back(counts[static_cast<size_t>(rank)]++);
  return chunks;
}

// `2F0`, or `F0` if the rank has only one stage.
std::string ShortToken(const PipelineSchedule& schedule, const PipelineAction& action) {
  std::string token = Token(action);
  return HasChunks(schedule) ? token : token.substr(token.find_first_not_of("0123456789"));
}

// The longest time of which all begins and ends are multiples.
int64_t CommonStep(const price::PipelineTimes& times) {
  int64_t common = 0;
  for (const price::RankTimes& rank : times.ranks) {
    for (Nanos begin : rank.begin) common = std::gcd(common, begin.value);
    for (Nanos end : rank.end) common = std::gcd(common, end.value);
  }
  return common;
}

std::string Padded(std::string text, size_t width, char fill) {
  text.resize(std::max(text.size(), width), fill);
  return text;
}

// The rank's actions in cells of `cell` columns; the last column of a cell may be a separator.
std::string LineOfTokens(const TimedSchedule& timed, size_t rank, int64_t step, size_t label,
                         size_t cell) {
  const price::RankTimes& times = timed.times.ranks[rank];
  std::string line;
  int64_t now = 0;
  auto fill = [&](int64_t until, std::string text, const std::string& more) {
    for (; now < until; ++now) line += Padded(std::exchange(text, more), cell, ' ');
  };
  std::string dashes(label, '-');
  for (size_t i = 0; i < times.end.size(); ++i) {
    fill(times.begin[i].value / step, ".", ".");
    std::string token = ShortToken(timed.schedule, timed.schedule.ranks[rank][i]);
    bool several = times.end[i].value / step - now > 1;
    fill(times.end[i].value / step, several ? Padded(token, label, '-') : token, dashes);
  }
  fill(timed.times.step.value / step, ".", ".");
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

// A letter per slice: what the rank does in the middle of it.
std::string LineOfLetters(const TimedSchedule& timed, const std::vector<int32_t>& chunks,
                          size_t rank, size_t columns) {
  constexpr std::string_view kLetters[] = {"FBIW", "fbiw"};
  const price::RankTimes& times = timed.times.ranks[rank];
  std::string line(columns, '.');
  auto step = static_cast<double>(timed.times.step.value);
  size_t at = 0;
  for (size_t column = 0; column < columns; ++column) {
    double middle = (static_cast<double>(column) + 0.5) / static_cast<double>(columns) * step;
    while (at < times.end.size() && static_cast<double>(times.end[at].value) <= middle) ++at;
    if (at == times.end.size() || static_cast<double>(times.begin[at].value) > middle) continue;
    const PipelineAction& action = timed.schedule.ranks[rank][at];
    int32_t chunk = chunks[static_cast<size_t>(action.stage)];
    line[column] = kLetters[chunk % 2][static_cast<size_t>(action.work)];
  }
  return line;
}

constexpr double kSvgWidth = 960;
constexpr double kSvgLeft = 64;
constexpr double kSvgRight = 12;
constexpr double kRowHeight = 22;
constexpr double kTitleHeight = 34;
constexpr double kLegendHeight = 30;
// Narrower actions have no label.
constexpr double kLetterWidth = 6.5;

constexpr std::string_view kSvgStyle = R"(<style>
  text { font: 11px system-ui, sans-serif; fill: #1d2533; }
  .name { font-weight: 600; font-size: 14px; }
  .note { font-size: 12px; fill: #5b6b86; }
  .label { text-anchor: middle; }
  .idle { fill: #f1f3f7; }
  rect { stroke: #fff; stroke-width: 0.6; }
  .F0 { fill: #a9c4ee; } .F1 { fill: #7fa6e0; }
  .B0 { fill: #9fd6ad; } .B1 { fill: #74bd86; }
  .I0 { fill: #a5dcd9; } .I1 { fill: #76c2be; }
  .W0 { fill: #f6cf9c; } .W1 { fill: #eab36c; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e3e8f2; }
    .note { fill: #9aa9c4; }
    .idle { fill: #202735; }
    rect { stroke: #161b26; }
    .F0 { fill: #2f4f80; } .F1 { fill: #3f68a8; }
    .B0 { fill: #2a6a3c; } .B1 { fill: #398750; }
    .I0 { fill: #276663; } .I1 { fill: #35837f; }
    .W0 { fill: #7d5320; } .W1 { fill: #9c6b2e; }
  }
</style>
)";

std::string Box(double x, double y, double width, std::string_view kind, std::string_view label,
                std::string_view title) {
  std::string out =
      fmt::format(R"(<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.0f}" class="{}">)", x, y,
                  width, kRowHeight - 3, kind);
  out += fmt::format("<title>{}</title></rect>\n", title);
  if (!label.empty() && static_cast<double>(label.size()) * kLetterWidth <= width)
    out += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" class="label">{}</text>)"
                       "\n",
                       x + width / 2, y + kRowHeight - 8, label);
  return out;
}

std::string Legend(double y, bool chunks) {
  constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"F", "forward"}, {"B", "backward"}, {"I", "input gradient"}, {"W", "weight gradient"}};
  std::string out;
  double x = kSvgLeft;
  for (const auto& [kind, text] : kKinds) {
    out += Box(x, y, 18, fmt::format("{}0", kind), "", text);
    if (chunks) out += Box(x + 18, y, 18, fmt::format("{}1", kind), "", text);
    out += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" class="note">{}</text>)"
                       "\n",
                       x + 42, y + 14, text);
    x += 150;
  }
  return out +
         fmt::format(R"(<text x="{:.1f}" y="{:.1f}" class="note">numbers: micro-batches{}</text>)"
                     "\n",
                     x, y + 14, chunks ? "; dark: 2nd stage" : "");
}

}  // namespace

double TimedSchedule::gap() const {
  return bounds.within_memory.value == 0 ? 0
                                         : static_cast<double>(times.step.value) /
                                                   static_cast<double>(bounds.within_memory.value) -
                                               1;
}

double TimedSchedule::most_in_flight() const {
  int64_t most = 0;
  for (const price::RankTimes& rank : times.ranks) most = std::max(most, rank.most_in_flight);
  return static_cast<double>(most) * static_cast<double>(schedule.ranks.size()) /
         static_cast<double>(schedule.stages);
}

TimedSchedule TimeSchedule(PipelineSchedule schedule, const price::PipelineCosts& costs) {
  TimedSchedule out{std::move(schedule), {}, {}};
  out.times = FindPipelineTimes(out.schedule, costs);
  std::vector<int64_t> in_flight;
  for (const price::RankTimes& rank : out.times.ranks) in_flight.push_back(rank.most_in_flight);
  out.bounds =
      FindPipelineBounds(RanksOfStages(out.schedule), out.schedule.micro_batches, costs, in_flight);
  return out;
}

std::string FormatUnits(Nanos time) {
  std::string out = fmt::format("{:.4f}", Units(time));
  out.erase(out.find_last_not_of('0') + 1);
  return out.ends_with('.') ? out.substr(0, out.size() - 1) : out;
}

std::string FormatPicture(const TimedSchedule& timed, size_t width) {
  size_t ranks = timed.schedule.ranks.size();
  size_t margin = fmt::format("rank {}  ", ranks - 1).size();
  size_t room = width > margin + 10 ? width - margin : 10;
  size_t label = 1;
  for (const std::vector<PipelineAction>& actions : timed.schedule.ranks)
    for (const PipelineAction& action : actions)
      label = std::max(label, ShortToken(timed.schedule, action).size());
  int64_t step = CommonStep(timed.times);
  auto columns = static_cast<uint64_t>(step == 0 ? INT64_MAX : timed.times.step.value / step);
  bool tokens = columns <= room / label;
  size_t cell = columns <= room / (label + 1) ? label + 1 : label;
  std::vector<int32_t> chunks = ChunksOfStages(timed.schedule);
  std::string out;
  for (size_t rank = 0; rank < ranks; ++rank) {
    out += Padded(fmt::format("rank {}", rank), margin, ' ');
    out += tokens ? LineOfTokens(timed, rank, step, label, cell)
                  : LineOfLetters(timed, chunks, rank, std::min<size_t>(columns, room));
    out += "\n";
  }
  return out;
}

std::string FormatPipelineSvg(std::span<const TimedSchedule> schedules) {
  Nanos longest;
  bool any_chunks = false;
  for (const TimedSchedule& timed : schedules) {
    longest = std::max(longest, timed.times.step);
    any_chunks |= HasChunks(timed.schedule);
  }
  double scale = (kSvgWidth - kSvgLeft - kSvgRight) / std::max(1.0, double(longest.value));
  std::string body;
  double y = 8;
  for (const TimedSchedule& timed : schedules) {
    const PipelineSchedule& schedule = timed.schedule;
    std::vector<int32_t> chunks = ChunksOfStages(schedule);
    body += fmt::format(
        R"(<text x="{:.1f}" y="{:.1f}"><tspan class="name">{}</tspan> )"
        R"(<tspan class="note" dx="8">time {}, bubble {:.1f} %, activations {:g}</tspan></text>)"
        "\n",
        kSvgLeft, y + 20, schedule.name, FormatUnits(timed.times.step), 100 * timed.times.bubble(),
        timed.most_in_flight());
    y += kTitleHeight - 4;
    for (size_t rank = 0; rank < schedule.ranks.size(); ++rank, y += kRowHeight) {
      const price::RankTimes& times = timed.times.ranks[rank];
      body +=
          fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end" class="note">rank {}</text>)"
                      "\n",
                      kSvgLeft - 8, y + kRowHeight - 8, rank);
      body += Box(kSvgLeft, y, static_cast<double>(timed.times.step.value) * scale, "idle", "",
                  fmt::format("rank {} idle", rank));
      for (size_t i = 0; i < times.end.size(); ++i) {
        const PipelineAction& action = schedule.ranks[rank][i];
        std::string token = Token(action);
        size_t letter = token.find_first_not_of("0123456789");
        body += Box(
            kSvgLeft + static_cast<double>(times.begin[i].value) * scale, y,
            static_cast<double>((times.end[i] - times.begin[i]).value) * scale,
            fmt::format("{}{}", token[letter], chunks[static_cast<size_t>(action.stage)] % 2),
            token.substr(letter + 1),
            fmt::format("{} {}-{}", token, FormatUnits(times.begin[i]), FormatUnits(times.end[i])));
      }
    }
    y += 6;
  }
  body += Legend(y + 6, any_chunks);
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {:.0f} {:.0f}" role="img" )"
      R"(aria-label="Pipeline schedules">)"
      "\n{}{}</svg>\n",
      kSvgWidth, y + kLegendHeight, kSvgStyle, body);
}

}  // namespace heddle
