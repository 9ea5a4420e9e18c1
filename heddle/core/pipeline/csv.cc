#include <algorithm>
#include <charconv>
#include <optional>

#include "heddle/core/base/text.h"
#include "heddle/core/base/utf8.h"
#include "heddle/core/pipeline/schedule.h"

namespace heddle {
namespace {

constexpr std::string_view kLetters = "FBIW";
constexpr std::string_view kOverlap = "OVERLAP_F_B";
constexpr std::string_view kCommunication[] = {"UNSHARD", "RESHARD", "REDUCE_GRAD", "SEND_F",
                                               "RECV_F",  "SEND_B",  "RECV_B"};

// Takes a number off the front of `text`.
std::optional<int32_t> TakeNumber(std::string_view& text) {
  int32_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

class ScheduleReader {
 public:
  ScheduleReader(std::string_view csv, std::string name) : csv_(csv) {
    parsed_.schedule.name = std::move(name);
  }

  Status ReadLine(std::string_view line);
  Result<ParsedSchedule> Finish();

 private:
  Status ReadCell(std::string_view cell, std::vector<PipelineAction>& actions);
  Status ReadPair(std::string_view cell, std::vector<PipelineAction>& actions);
  // One computation, or none if the cell is communication.
  Result<std::optional<PipelineAction>> ReadToken(std::string_view text);

  std::string_view csv_;
  ParsedSchedule parsed_;
};

Failure NotAnAction(std::string_view text) {
  return Error(Diag::kSchedule,
               "`{}` is not an action; write a stage, F, B, I or W, and a micro-batch, as in "
               "`2F0`, or a pair `(0F7;7B3){}`",
               Utf8Prefix(text, 40), kOverlap);
}

Result<std::optional<PipelineAction>> ScheduleReader::ReadToken(std::string_view text) {
  std::string_view rest = text;
  std::optional<int32_t> stage = TakeNumber(rest);
  if (!stage) return NotAnAction(text);
  for (std::string_view kind : kCommunication) {
    if (!rest.starts_with(kind)) continue;
    std::string_view number = rest.substr(kind.size());
    if (!number.empty() && (!TakeNumber(number) || !number.empty())) return NotAnAction(text);
    ++parsed_.communication;
    return std::optional<PipelineAction>();
  }
  size_t work = rest.empty() ? kLetters.npos : kLetters.find(rest[0]);
  if (work == kLetters.npos) return NotAnAction(text);
  rest.remove_prefix(1);
  std::optional<int32_t> micro_batch = TakeNumber(rest);
  if (!micro_batch || !rest.empty()) return NotAnAction(text);
  PipelineSchedule& schedule = parsed_.schedule;
  schedule.stages = std::max(schedule.stages, int64_t{*stage} + 1);
  schedule.micro_batches = std::max(schedule.micro_batches, int64_t{*micro_batch} + 1);
  return std::optional(
      PipelineAction{*stage, static_cast<PipelineWork>(work), *micro_batch, false});
}

Status ScheduleReader::ReadPair(std::string_view cell, std::vector<PipelineAction>& actions) {
  size_t close = cell.find(')');
  if (close == cell.npos || Trim(cell.substr(close + 1)) != kOverlap) return NotAnAction(cell);
  std::vector<std::string_view> parts = Split(cell.substr(1, close - 1), ';');
  if (parts.size() != 2) return NotAnAction(cell);
  for (std::string_view part : parts) {
    HEDDLE_TRY(std::optional<PipelineAction> action, ReadToken(Trim(part)));
    if (!action) return NotAnAction(cell);
    action->with_next = part.data() == parts[0].data();
    actions.push_back(*action);
  }
  return Done{};
}

Status ScheduleReader::ReadCell(std::string_view cell, std::vector<PipelineAction>& actions) {
  if (cell.starts_with('(')) return ReadPair(cell, actions);
  HEDDLE_TRY(std::optional<PipelineAction> action, ReadToken(cell));
  if (action) actions.push_back(*action);
  return Done{};
}

Status ScheduleReader::ReadLine(std::string_view line) {
  std::vector<PipelineAction>& actions = parsed_.schedule.ranks.emplace_back();
  for (std::string_view cell : Split(line, ',')) {
    cell = Trim(cell);
    // Spreadsheets quote cells.
    if (cell.size() >= 2 && cell.starts_with('"') && cell.ends_with('"'))
      cell = Trim(cell.substr(1, cell.size() - 2));
    if (cell.empty()) continue;
    Status read = ReadCell(cell, actions);
    if (read.ok()) continue;
    auto offset = static_cast<size_t>(cell.data() - csv_.data());
    return Failure{{SourceText(parsed_.schedule.name, csv_)
                        .At(read.diagnostics().front(), offset, cell.size())}};
  }
  return Done{};
}

Result<ParsedSchedule> ScheduleReader::Finish() {
  Status checked = CheckPipelineSchedule(parsed_.schedule);
  if (!checked.ok()) {
    checked.diagnostics().front().file = parsed_.schedule.name;
    return std::move(checked).failure();
  }
  return std::move(parsed_);
}

}  // namespace

std::string Token(const PipelineAction& action) {
  return fmt::format("{}{}{}", action.stage, kLetters[static_cast<size_t>(action.work)],
                     action.micro_batch);
}

Result<ParsedSchedule> ParseSchedule(std::string_view csv, std::string name) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (csv.starts_with(kByteOrderMark)) csv.remove_prefix(kByteOrderMark.size());
  while (csv.ends_with('\n') || csv.ends_with('\r')) csv.remove_suffix(1);
  ScheduleReader reader(csv, std::move(name));
  for (std::string_view line : Split(csv, '\n')) HEDDLE_RETURN_IF_ERROR(reader.ReadLine(line));
  return reader.Finish();
}

std::string FormatCsv(const PipelineSchedule& schedule) {
  std::string out;
  for (const std::vector<PipelineAction>& actions : schedule.ranks) {
    for (size_t i = 0; i < actions.size(); ++i) {
      if (i > 0) out += ",";
      if (actions[i].with_next) {
        out += fmt::format("({};{}){}", Token(actions[i]), Token(actions[i + 1]), kOverlap);
        ++i;
      } else {
        out += Token(actions[i]);
      }
    }
    out += "\n";
  }
  return out;
}

std::string FormatRows(const PipelineSchedule& schedule) {
  std::string rows = FormatCsv(schedule);
  if (!rows.empty()) rows.pop_back();
  std::ranges::replace(rows, '\n', '/');
  return rows;
}

std::string ScheduleName(std::string_view text) {
  if (text.find('/') != text.npos) return "csv";
  const ScheduleFamily* family = FindScheduleFamily(text);
  return std::string(family != nullptr ? family->name : text);
}

Result<PipelineSchedule> FindSchedule(std::string_view text, const PipelineShape& shape) {
  if (text.find('/') == text.npos) {
    const ScheduleFamily* family = FindScheduleFamily(text);
    if (family == nullptr)
      return Error(Diag::kSchedule, "unknown schedule `{}`; `heddle schedule` lists them", text);
    return MakeSchedule(*family, shape);
  }
  std::string csv(text);
  std::ranges::replace(csv, '/', '\n');
  HEDDLE_TRY(ParsedSchedule parsed, ParseSchedule(csv, "csv"));
  const PipelineSchedule& found = parsed.schedule;
  if (static_cast<int64_t>(found.ranks.size()) != shape.ranks || found.stages != shape.stages ||
      found.micro_batches != shape.micro_batches)
    return Error(Diag::kSchedule,
                 "the schedule has {}, {} and {} micro-batches, but the pipeline has {}, {} and {}",
                 Counted(found.ranks.size(), "rank"), Counted(found.stages, "stage"),
                 found.micro_batches, Counted(shape.ranks, "rank"), Counted(shape.stages, "stage"),
                 shape.micro_batches);
  return std::move(parsed.schedule);
}

}  // namespace heddle
