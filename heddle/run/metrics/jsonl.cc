// Metrics as lines of JSON.
#include <cmath>

#include <nlohmann/json.hpp>

#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"
#include "heddle/run/metrics/append_file.h"
#include "heddle/run/metrics/metrics_file.h"

namespace heddle::run {
namespace {

using Json = nlohmann::ordered_json;

// JSON lacks NaN and infinity, so they become `null`.
Json Number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

std::string JsonLine(const StepMetrics& m) {
  Json json{{"step", m.step},
            {"loss", Number(m.loss)},
            {"grad_norm", Number(m.grad_norm)},
            {"lr", Number(m.lr)},
            {"memory_bytes", m.memory.value},
            {"memory_share", Number(m.memory_share)},
            {"tps", Number(m.tps)},
            {"tflops", Number(m.tflops)},
            {"seconds", Number(m.seconds)},
            {"data_seconds", Number(m.data_seconds)}};
  if (m.mfu) json["mfu"] = Number(*m.mfu);
  if (m.validation_loss) json["validation_loss"] = Number(*m.validation_loss);
  if (std::optional<double> perplexity = ValidationPerplexity(m))
    json["validation_perplexity"] = Number(*perplexity);
  if (std::optional<double> times = ExpertImbalance(m)) json["expert_imbalance"] = *times;
  for (const ExpertLoad& load : m.experts) json["tokens_per_expert"][load.layer] = load.tokens;
  for (const TextSample& sample : m.samples)
    json["samples"].push_back({{"prompt", sample.prompt}, {"text", sample.text}});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

class JsonlFile final : public MetricsFile {
 public:
  explicit JsonlFile(std::unique_ptr<AppendFile> file) : file_(std::move(file)) {}
  Status Write(const StepMetrics& metrics) override { return file_->Append(JsonLine(metrics)); }

 private:
  std::unique_ptr<AppendFile> file_;
};

// Returns the lines of steps up to `last`. Drops a line that a crash has cut off, and all lines
// after it.
std::string LinesUpTo(std::string_view text, int64_t last) {
  std::string kept;
  while (!text.empty()) {
    size_t end = text.find('\n');
    if (end == std::string_view::npos) break;
    Json line = Json::parse(text.substr(0, end), nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer() ||
        line["step"].get<int64_t>() > last)
      break;
    kept += text.substr(0, end + 1);
    text.remove_prefix(end + 1);
  }
  return kept;
}

}  // namespace

Result<std::unique_ptr<MetricsFile>> OpenJsonl(const std::string& path, int64_t after_step) {
  // Also checks that the file is writable, before the existing content is changed.
  HEDDLE_TRY(auto file, AppendFile::Open(path, after_step == 0));
  if (after_step > 0) {
    HEDDLE_TRY(std::string text, ReadFile(path));
    std::string kept = LinesUpTo(text, after_step);
    if (kept != text) {
      HEDDLE_RETURN_IF_ERROR(WriteFile(path, kept));
      // WriteFile has replaced the opened file.
      HEDDLE_TRY(file, AppendFile::Open(path, false));
    }
  }
  return std::unique_ptr<MetricsFile>(std::make_unique<JsonlFile>(std::move(file)));
}

}  // namespace heddle::run
