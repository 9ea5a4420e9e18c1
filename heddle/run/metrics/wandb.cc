#include "heddle/run/metrics/wandb.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>
#include <optional>

#include <dirent.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "heddle/core/base/file.h"
#include "heddle/run/metrics/append_file.h"
#include "heddle/run/metrics/protobuf.h"
#include "heddle/run/metrics/scalars.h"

namespace heddle::run {
namespace {

// Numbers of fields in wandb_internal.proto.
// Record.
constexpr uint64_t kNum = 1, kHistory = 2, kSummary = 3, kRun = 17, kExit = 18, kHeader = 21;
// HeaderRecord and VersionInfo.
constexpr uint64_t kVersionInfo = 1, kProducer = 1;
// RunRecord.
constexpr uint64_t kRunId = 1, kEntity = 2, kProject = 3, kConfig = 4, kName = 8, kHost = 13,
                   kStartTime = 17;
// The items of HistoryRecord, and the updates of ConfigRecord and SummaryRecord.
constexpr uint64_t kItem = 1, kItemKey = 1, kItemJson = 16;
// HistoryRecord and HistoryStep.
constexpr uint64_t kStep = 2, kStepNum = 1;
// Timestamp.
constexpr uint64_t kSeconds = 1, kNanos = 2;
// RunExitRecord.
constexpr uint64_t kExitCode = 1, kExitRuntime = 2;

constexpr std::string_view kRuntimeKey = "_runtime";

double WallTime() {
  auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

// W&B writes values that JSON lacks as Python does.
std::string NumberJson(double x) {
  if (std::isnan(x)) return "NaN";
  if (std::isinf(x)) return x > 0 ? "Infinity" : "-Infinity";
  return nlohmann::json(x).dump();
}

std::string TextJson(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void AppendItem(std::string& message, std::string_view key, std::string_view json) {
  std::string out;
  AppendBytes(out, kItemKey, key);
  AppendBytes(out, kItemJson, json);
  AppendBytes(message, kItem, out);
}

// The items of a step, for its history and for the summary of the run.
std::string ItemsOf(const StepMetrics& m, double time, double runtime) {
  std::string out;
  for (const auto& [name, value] : Scalars(m)) AppendItem(out, name, NumberJson(value));
  for (size_t i = 0; i < m.samples.size(); ++i) {
    AppendItem(out, fmt::format("samples/{}/prompt", i + 1), TextJson(m.samples[i].prompt));
    AppendItem(out, fmt::format("samples/{}/text", i + 1), TextJson(m.samples[i].text));
  }
  AppendItem(out, "_timestamp", NumberJson(time));
  AppendItem(out, kRuntimeKey, NumberJson(runtime));
  AppendItem(out, "_step", std::to_string(m.step));
  return out;
}

// --- Folders of runs

// `offline-run-20260102_030405-ID`.
constexpr std::string_view kPrefix = "offline-run-";
constexpr size_t kTimeSize = 15;

struct RunFolder {
  std::string name;
  std::string id;
};

// By name, so the earliest is first.
std::vector<RunFolder> RunFoldersIn(const std::string& root) {
  std::vector<RunFolder> found;
  DIR* stream = ::opendir(root.c_str());
  if (stream == nullptr) return found;
  while (const dirent* entry = ::readdir(stream)) {
    std::string name = entry->d_name;
    size_t at = kPrefix.size() + kTimeSize;
    if (name.starts_with(kPrefix) && name.size() > at + 1 && name[at] == '-')
      found.push_back({name, name.substr(at + 1)});
  }
  ::closedir(stream);
  std::ranges::sort(found, {}, &RunFolder::name);
  return found;
}

// The number of a run of `job`: 2 for `JOB-2`, 1 for `JOB`, 0 for other jobs.
int64_t NumberOf(std::string_view id, std::string_view job) {
  if (!id.starts_with(job)) return 0;
  id.remove_prefix(job.size());
  if (id.empty()) return 1;
  int64_t number = 0;
  auto [end, error] = std::from_chars(id.data() + 1, id.data() + id.size(), number);
  bool whole = id[0] == '-' && error == std::errc() && end == id.data() + id.size();
  return whole && number > 1 ? number : 0;
}

// Returns the latest run of the job, or with the id; null if the folder has none.
const RunFolder* LatestOf(const std::vector<RunFolder>& folders, const WandbOptions& options) {
  const RunFolder* latest = nullptr;
  int64_t most = 0;
  for (const RunFolder& folder : folders) {
    int64_t number =
        options.id.empty() ? NumberOf(folder.id, options.job) : (folder.id == options.id ? 1 : 0);
    if (number == 0 || number < most) continue;
    latest = &folder;
    most = number;
  }
  return latest;
}

std::string NewId(const RunFolder* latest, const WandbOptions& options) {
  if (!options.id.empty()) return options.id;
  if (latest == nullptr) return options.job;
  return fmt::format("{}-{}", options.job, NumberOf(latest->id, options.job) + 1);
}

std::string NewFolder(const std::string& id, double time) {
  auto seconds = static_cast<std::time_t>(time);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char text[kTimeSize + 1] = "";
  std::strftime(text, sizeof text, "%Y%m%d_%H%M%S", &local);
  return fmt::format("{}{}-{}", kPrefix, text, id);
}

// --- The file

class WandbFile final : public MetricsFile {
 public:
  // Begins a file, or continues one that has `size` bytes and `records` records, whose last step
  // was at `runtime`.
  WandbFile(std::unique_ptr<AppendFile> file, uint64_t size, uint64_t records, double runtime)
      : file_(std::move(file)), size_(size), records_(records), begin_(WallTime() - runtime) {}

  Status Begin(const WandbOptions& options, const std::string& id) {
    std::string version;
    AppendBytes(version, kProducer, "heddle " + options.version);
    std::string head;
    AppendBytes(head, kVersionInfo, version);
    return Append({{kHeader, head}, {kRun, RunMessage(options, id)}});
  }

  Status Write(const StepMetrics& metrics) override {
    double now = WallTime();
    std::string items = ItemsOf(metrics, now, now - begin_);
    std::string step;
    AppendNumber(step, kStepNum, static_cast<uint64_t>(metrics.step));
    std::string line = items;
    AppendBytes(line, kStep, step);
    return Append({{kHistory, line}, {kSummary, items}});
  }

  Status Finish(int exit_code) override {
    std::string end;
    AppendNumber(end, kExitCode, static_cast<uint64_t>(exit_code));
    AppendNumber(end, kExitRuntime, static_cast<uint64_t>(WallTime() - begin_));
    return Append({{kExit, end}});
  }

 private:
  static std::string RunMessage(const WandbOptions& options, const std::string& id) {
    std::string out;
    AppendBytes(out, kRunId, id);
    if (!options.entity.empty()) AppendBytes(out, kEntity, options.entity);
    if (!options.project.empty()) AppendBytes(out, kProject, options.project);
    if (!options.name.empty()) AppendBytes(out, kName, options.name);
    std::string config;
    for (const auto& [key, json] : options.config) AppendItem(config, key, json);
    AppendBytes(out, kConfig, config);
    char host[256] = "localhost";
    (void)!::gethostname(host, sizeof host - 1);
    AppendBytes(out, kHost, host);
    double now = WallTime();
    std::string time;
    AppendNumber(time, kSeconds, static_cast<uint64_t>(now));
    AppendNumber(time, kNanos, static_cast<uint64_t>((now - std::floor(now)) * 1e9));
    AppendBytes(out, kStartTime, time);
    return out;
  }

  // Appends records in one write, so that a killed run has all of them or none.
  Status Append(std::initializer_list<std::pair<uint64_t, std::string_view>> messages) {
    std::string bytes;
    uint64_t number = records_;
    for (const auto& [field, message] : messages) {
      std::string one;
      AppendNumber(one, kNum, ++number);
      AppendBytes(one, field, message);
      bytes += WandbFrame(one, size_ + bytes.size());
    }
    HEDDLE_RETURN_IF_ERROR(file_->Append(bytes));
    size_ += bytes.size();
    records_ = number;
    return Done{};
  }

  std::unique_ptr<AppendFile> file_;
  uint64_t size_;
  uint64_t records_;
  // When the run began. Time between the end of a run and its resumption does not count.
  double begin_;
};

// The seconds after which the step of a history was written.
double RuntimeOf(std::string_view history) {
  while (std::optional<ProtoField> field = TakeField(history)) {
    std::optional<ProtoField> key = FindField(field->bytes, kItemKey);
    std::optional<ProtoField> json = FindField(field->bytes, kItemJson);
    if (field->field != kItem || !key || !json || key->bytes != kRuntimeKey) continue;
    nlohmann::json value = nlohmann::json::parse(json->bytes, nullptr, /*allow_exceptions=*/false);
    if (value.is_number()) return value;
  }
  return 0;
}

// Keeps the records up to a step, which is as far as the checkpoint of the run is.
Result<std::unique_ptr<MetricsFile>> Continue(const std::string& path, int64_t after_step) {
  HEDDLE_TRY(std::string text, ReadFile(path));
  HEDDLE_TRY(std::vector<std::string> records, ReadWandbRecords(text, path));
  std::string kept;
  double runtime = 0;
  uint64_t count = 0;
  bool has_run = false;
  for (const std::string& one : records) {
    if (FindField(one, kExit)) break;
    if (std::optional<ProtoField> line = FindField(one, kHistory)) {
      std::optional<ProtoField> step = FindField(line->bytes, kStep);
      std::optional<ProtoField> number = step ? FindField(step->bytes, kStepNum) : std::nullopt;
      if (number && static_cast<int64_t>(number->value) > after_step) break;
      runtime = RuntimeOf(line->bytes);
    }
    has_run = has_run || FindField(one, kRun);
    kept += WandbFrame(one, kept.size());
    ++count;
  }
  if (!has_run)
    return Error(Diag::kFileRead, "`{}` is damaged before its first step; move it away", path);
  if (kept != text) HEDDLE_RETURN_IF_ERROR(WriteFile(path, kept));
  // The marks of an upload, with which `wandb sync` would skip the run.
  for (const char* mark : {".synced", ".syncstate"}) (void)!::unlink((path + mark).c_str());
  HEDDLE_TRY(auto file, AppendFile::Open(path, /*fresh=*/false));
  return std::unique_ptr<MetricsFile>(
      std::make_unique<WandbFile>(std::move(file), kept.size(), count, runtime));
}

}  // namespace

Result<std::unique_ptr<MetricsFile>> OpenWandb(const WandbOptions& options, int64_t after_step) {
  std::string root = options.folder + "/wandb";
  HEDDLE_RETURN_IF_ERROR(MakeDirectories(root));
  std::vector<RunFolder> folders = RunFoldersIn(root);
  const RunFolder* latest = LatestOf(folders, options);
  if (after_step > 0 && latest != nullptr)
    return Continue(fmt::format("{}/{}/run-{}.wandb", root, latest->name, latest->id), after_step);
  std::string id = NewId(latest, options);
  std::string folder = fmt::format("{}/{}", root, NewFolder(id, WallTime()));
  // `wandb sync` writes the configuration into the inner folder.
  HEDDLE_RETURN_IF_ERROR(MakeDirectories(folder + "/files"));
  HEDDLE_TRY(auto file,
             AppendFile::Open(fmt::format("{}/run-{}.wandb", folder, id), /*fresh=*/true));
  auto run = std::make_unique<WandbFile>(std::move(file), 0, 0, 0);
  HEDDLE_RETURN_IF_ERROR(run->Begin(options, id));
  return std::unique_ptr<MetricsFile>(std::move(run));
}

}  // namespace heddle::run
