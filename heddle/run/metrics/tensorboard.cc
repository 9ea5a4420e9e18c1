// TensorBoard's event files: TFRecord records that each contain an Event
// (tensorflow/core/util/event.proto).
#include <chrono>

#include <unistd.h>

#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"
#include "heddle/run/metrics/append_file.h"
#include "heddle/run/metrics/crc32.h"
#include "heddle/run/metrics/metrics_file.h"
#include "heddle/run/metrics/protobuf.h"
#include "heddle/run/metrics/scalars.h"

namespace heddle::run {
namespace {

// Returns the beginning of an event: wall_time = 1, step = 2.
std::string Event(double time, int64_t step) {
  std::string out;
  AppendDouble(out, 1, time);
  AppendNumber(out, 2, static_cast<uint64_t>(step));
  return out;
}

// Appends a value of a summary: tag = 1, simple_value = 2.
void AppendScalar(std::string& summary, std::string_view tag, double value) {
  std::string scalar;
  AppendBytes(scalar, 1, tag);
  AppendFloat(scalar, 2, static_cast<float>(value));
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

// Markdown of a code block.
std::string CodeBlock(std::string_view text) {
  std::string out;
  for (std::string_view line : Split(text, '\n')) out += fmt::format("    {}\n", line);
  return out;
}

// Appends a text of the plugin for texts: tag = 1, tensor = 8 (dtype = 1, string_val = 8, a
// scalar), metadata = 9 (plugin_data = 1 (plugin_name = 1), data_class = 4).
void AppendText(std::string& summary, std::string_view tag, std::string_view markdown) {
  constexpr uint64_t kString = 7;
  constexpr uint64_t kTensorClass = 2;
  std::string tensor;
  AppendNumber(tensor, 1, kString);
  AppendBytes(tensor, 8, markdown);
  std::string plugin;
  AppendBytes(plugin, 1, "text");
  std::string metadata;
  AppendBytes(metadata, 1, plugin);
  AppendNumber(metadata, 4, kTensorClass);
  std::string text;
  AppendBytes(text, 1, tag);
  AppendBytes(text, 8, tensor);
  AppendBytes(text, 9, metadata);
  AppendBytes(summary, 1, text);
}

std::string Summary(const StepMetrics& m) {
  std::string out;
  for (const auto& [name, value] : Scalars(m)) AppendScalar(out, name, value);
  for (size_t i = 0; i < m.samples.size(); ++i)
    AppendText(out, fmt::format("samples/{}", i + 1),
               fmt::format("prompt:\n\n{}\ntext:\n\n{}", CodeBlock(m.samples[i].prompt),
                           CodeBlock(m.samples[i].text)));
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
