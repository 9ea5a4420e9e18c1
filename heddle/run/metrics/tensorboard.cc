// TensorBoard's event files: TFRecord records that each contain an Event
// (tensorflow/core/util/event.proto).
#include <bit>
#include <chrono>
#include <cstring>

#include <unistd.h>

#include "heddle/core/base/file.h"
#include "heddle/run/metrics/append_file.h"
#include "heddle/run/metrics/crc32c.h"
#include "heddle/run/metrics/metrics_file.h"

namespace heddle::run {
namespace {

// Wire types of protocol buffers. A field is its number and wire type, then its content.
enum Wire : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void AppendVarint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

template <typename T>
void AppendFixed(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void AppendTag(std::string& out, uint64_t field, Wire wire) {
  AppendVarint(out, field << 3 | wire);
}

void AppendBytes(std::string& out, uint64_t field, std::string_view bytes) {
  AppendTag(out, field, kBytes);
  AppendVarint(out, bytes.size());
  out += bytes;
}

// Returns the beginning of an event: wall_time = 1, step = 2.
std::string Event(double time, int64_t step) {
  std::string out;
  AppendTag(out, 1, kFixed64);
  AppendFixed(out, time);
  AppendTag(out, 2, kVarint);
  AppendVarint(out, static_cast<uint64_t>(step));
  return out;
}

// Appends a value of a summary: tag = 1, simple_value = 2.
void AppendScalar(std::string& summary, std::string_view tag, double value) {
  std::string scalar;
  AppendBytes(scalar, 1, tag);
  AppendTag(scalar, 2, kFixed32);
  AppendFixed(scalar, static_cast<float>(value));
  AppendBytes(summary, 1, scalar);
}

// Returns a record: length, its checksum, content, its checksum.
std::string Record(std::string_view content) {
  std::string out;
  AppendFixed(out, static_cast<uint64_t>(content.size()));
  AppendFixed(out, MaskedCrc32c(out));
  out += content;
  AppendFixed(out, MaskedCrc32c(content));
  return out;
}

double Now() {
  auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

// Uses TorchTitan's names.
std::string Summary(const StepMetrics& m) {
  std::string out;
  AppendScalar(out, "loss_metrics/global_avg_loss", m.loss);
  AppendScalar(out, "grad_norm", m.grad_norm);
  AppendScalar(out, "lr", m.lr);
  AppendScalar(out, "throughput(tps)", m.tps);
  AppendScalar(out, "tflops", m.tflops);
  if (m.mfu) AppendScalar(out, "mfu(%)", 100 * *m.mfu);
  AppendScalar(out, "time_metrics/end_to_end(s)", m.seconds);
  AppendScalar(out, "time_metrics/data_loading(s)", m.data_seconds);
  AppendScalar(out, "time_metrics/data_loading(%)",
               m.seconds > 0 ? 100 * m.data_seconds / m.seconds : 0);
  AppendScalar(out, "memory/max_reserved(GiB)", static_cast<double>(m.memory.value) * 0x1p-30);
  AppendScalar(out, "memory/max_reserved(%)", 100 * m.memory_share);
  if (m.validation_loss) AppendScalar(out, "validation_metrics/loss", *m.validation_loss);
  if (std::optional<double> perplexity = ValidationPerplexity(m))
    AppendScalar(out, "validation_metrics/perplexity", *perplexity);
  if (std::optional<double> times = ExpertImbalance(m))
    AppendScalar(out, "expert_imbalance", *times);
  for (const ExpertLoad& load : m.experts) {
    for (size_t e = 0; e < load.tokens.size(); ++e)
      AppendScalar(out, fmt::format("tokens_per_expert/{}/{}", load.layer, e),
                   static_cast<double>(load.tokens[e]));
  }
  return out;
}

class TensorBoardFile final : public MetricsFile {
 public:
  explicit TensorBoardFile(std::unique_ptr<AppendFile> file) : file_(std::move(file)) {}

  // file_version = 3.
  Status Begin() {
    std::string event = Event(Now(), 0);
    AppendBytes(event, 3, "brain.Event:2");
    return file_->Append(Record(event));
  }
  // summary = 5.
  Status Write(const StepMetrics& metrics) override {
    std::string event = Event(Now(), metrics.step);
    AppendBytes(event, 5, Summary(metrics));
    return file_->Append(Record(event));
  }

 private:
  std::unique_ptr<AppendFile> file_;
};

}  // namespace

Result<std::unique_ptr<MetricsFile>> OpenTensorBoard(const std::string& folder) {
  HEDDLE_RETURN_IF_ERROR(MakeDirectories(folder));
  char host[256] = "localhost";
  (void)!::gethostname(host, sizeof host - 1);
  // TensorBoard reads the files of a folder in the order of their names, so names begin with the
  // time.
  auto path = fmt::format("{}/events.out.tfevents.{}.{}.{}.heddle", folder,
                          static_cast<int64_t>(Now() * 1e6), host, ::getpid());
  HEDDLE_TRY(auto file, AppendFile::Open(path, /*fresh=*/true));
  auto events = std::make_unique<TensorBoardFile>(std::move(file));
  HEDDLE_RETURN_IF_ERROR(events->Begin());
  return std::unique_ptr<MetricsFile>(std::move(events));
}

}  // namespace heddle::run
