#include "heddle/report/run/run_log.h"

#include <algorithm>
#include <cmath>

#include <unistd.h>

#include "heddle/core/base/file.h"
#include "heddle/core/base/json.h"
#include "heddle/core/base/text.h"
#include "heddle/core/base/units.h"

namespace heddle {
namespace {

constexpr RunColumn kColumns[] = {
    {"loss", "loss", RunUnit::kNumber},
    {"validation_loss", "validation loss", RunUnit::kNumber},
    {"validation_perplexity", "validation perplexity", RunUnit::kNumber},
    {"grad_norm", "gradient norm", RunUnit::kNumber},
    {"lr", "learning rate", RunUnit::kNumber},
    {"tps", "tokens/s per rank", RunUnit::kCount},
    {"tflops", "TFLOP/s per rank", RunUnit::kNumber},
    {"mfu", "MFU", RunUnit::kShare},
    {"memory_bytes", "memory", RunUnit::kBytes},
    {"seconds", "step time", RunUnit::kSeconds},
    {"data_seconds", "waiting for data", RunUnit::kSeconds},
    {"expert_imbalance", "expert imbalance", RunUnit::kNumber},
};

class RunLogReader {
 public:
  explicit RunLogReader(std::string path) : path_(std::move(path)) {
    log_.file = path_.substr(path_.rfind('/') + 1);
    log_.values.resize(std::size(kColumns));
  }

  Result<RunLog> Read(std::string_view text) {
    while (!text.empty()) {
      ++line_;
      size_t end = text.find('\n');
      bool cut = end == std::string_view::npos;
      std::string_view line = text.substr(0, end);
      text.remove_prefix(cut ? text.size() : end + 1);
      Result<JsonDocument> document =
          JsonDocument::Parse(std::string(line), path_, Diag::kFileRead);
      if (cut && !document.ok()) {
        log_.cut_line = line_;
        break;
      }
      if (!document.ok() || !document->root().is_object())
        return Fail("is no JSON object; remove the line, or the lines from there on");
      HEDDLE_RETURN_IF_ERROR(AddRow(document->root()));
    }
    if (log_.steps.empty())
      return Error(Diag::kFileRead, "`{}` has no steps; `heddle train --metrics.jsonl` writes them",
                   path_);
    for (std::vector<double>& column : log_.values) {
      if (std::ranges::none_of(column, [](double x) { return std::isfinite(x); })) column.clear();
    }
    return std::move(log_);
  }

 private:
  template <typename... Args>
  Failure Fail(fmt::format_string<Args...> format, Args&&... args) const {
    return Error(Diag::kFileRead, "`{}`: line {} {}", path_, line_,
                 fmt::format(format, std::forward<Args>(args)...));
  }

  Status AddRow(JsonValue row) {
    std::optional<JsonValue> step = row.Find("step");
    if (!step || !step->is_int() || !row.Find("loss"))
      return Fail(
          "has no `step` and `loss`; expected metrics as `heddle train --metrics.jsonl` writes "
          "them");
    if (!log_.steps.empty() && step->integer() <= log_.steps.back())
      return Fail("has step {} after step {}; steps must increase", step->integer(),
                  log_.steps.back());
    log_.steps.push_back(step->integer());
    for (size_t c = 0; c < std::size(kColumns); ++c) {
      std::optional<JsonValue> value = row.Find(kColumns[c].key);
      if (value && !value->is_number() && !value->is_null())
        return Fail("has {} as `{}`; expected a number", Describe(*value), kColumns[c].key);
      log_.values[c].push_back(value && value->is_number() ? value->number() : NAN);
    }
    return AddSamples(row);
  }

  Status AddSamples(JsonValue row) {
    std::optional<JsonValue> samples = row.Find("samples");
    if (!samples) return Done{};
    for (JsonValue sample : samples->items()) {
      std::optional<JsonValue> prompt = sample.Find("prompt");
      std::optional<JsonValue> text = sample.Find("text");
      if (!prompt || !prompt->is_string() || !text || !text->is_string())
        return Fail("has a sample without `prompt` and `text`");
      log_.samples.push_back(
          {log_.steps.back(), std::string(prompt->string()), std::string(text->string())});
    }
    return Done{};
  }

  std::string path_;
  int64_t line_ = 0;
  RunLog log_;
};

}  // namespace

std::string_view Name(RunUnit unit) {
  switch (unit) {
    case RunUnit::kNumber: return "number";
    case RunUnit::kCount: return "count";
    case RunUnit::kShare: return "share";
    case RunUnit::kBytes: return "bytes";
    case RunUnit::kSeconds: return "seconds";
  }
  return "";
}

std::string FormatAs(RunUnit unit, double value) {
  // Files may have any number. Larger ones do not fit 64 bits.
  double most = unit == RunUnit::kSeconds ? 9e9 : 9e18;
  if (unit == RunUnit::kNumber || !(std::abs(value) < most)) return fmt::format("{:.5g}", value);
  switch (unit) {
    case RunUnit::kCount: return WithCommas(std::llround(value));
    case RunUnit::kShare: return fmt::format("{:.2f} %", 100 * value);
    case RunUnit::kBytes: return Format(Bytes{std::llround(value)});
    default: return Format(Nanos{std::llround(value * 1e9)});
  }
}

std::span<const RunColumn> RunColumns() { return kColumns; }

const std::vector<double>& RunLog::Of(std::string_view key) const {
  auto column = std::ranges::find(kColumns, key, &RunColumn::key);
  return values[static_cast<size_t>(column - std::begin(kColumns))];
}

bool IsRunFolder(const std::string& path) {
  return IsDirectory(path) && ::access(fmt::format("{}/{}", path, kRunMetrics).c_str(), F_OK) == 0;
}

Result<RunLog> LoadRunLog(const std::string& path) {
  std::string file = IsDirectory(path) ? fmt::format("{}/{}", path, kRunMetrics) : path;
  HEDDLE_TRY(std::string text, ReadFile(file));
  return RunLogReader(file).Read(text);
}

}  // namespace heddle
