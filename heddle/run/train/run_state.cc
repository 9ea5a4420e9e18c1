#include "heddle/run/train/run_state.h"

#include <algorithm>
#include <charconv>
#include <map>

#include <nlohmann/json.hpp>

#include "heddle/core/base/text.h"
#include "heddle/run/models/family.h"

namespace heddle::run {
namespace {

using RunJson = nlohmann::ordered_json;

constexpr std::string_view kConstants = "constants";
constexpr std::string_view kLargestToken = "largest_token";
constexpr const char* kOptimizer = "optimizer.name";

RunJson ConstantsOf(const ModelConfig& config) {
  ModelConfig copy = config;
  RunJson constants = RunJson::object();
  for (const ConfigField& field : ConfigFields()) {
    RunJson& value = constants[std::string(field.name)];
    if (field.size != nullptr) value = field.size(copy);
    if (field.number != nullptr) value = field.number(copy);
    if (field.choose != nullptr) value = field.choices[field.chosen(copy)];
    if (field.text != nullptr) value = field.text(copy);
  }
  return constants;
}

RunJson ToJson(const RunState& state) {
  RunJson settings = RunJson::object();
  for (const auto& [key, value] : state.settings) settings[key] = value;
  RunJson json = {{"model", state.config.family->name},
                  {"flavor", state.config.flavor},
                  {kConstants, ConstantsOf(state.config)},
                  {"seed", state.seed},
                  {"data", state.data},
                  {"text", state.text},
                  {"settings", std::move(settings)}};
  if (state.largest_token) json[std::string(kLargestToken)] = *state.largest_token;
  return json;
}

std::string Dump(const RunJson& json) {
  return json.dump(-1, ' ', false, RunJson::error_handler_t::replace);
}

// Returns the state of a checkpoint; an empty object if its JSON is not an object.
RunJson Parse(const Checkpoint& checkpoint) {
  RunJson state = RunJson::parse(checkpoint.state(), nullptr, /*allow_exceptions=*/false);
  return state.is_object() ? state : RunJson::object();
}

// Returns the value as a flag takes it.
std::string FlagText(const RunJson& json) {
  return json.is_string() ? json.get<std::string>() : Dump(json);
}

Status SetConstant(ModelConfig& config, const ConfigField& field, const RunJson& value) {
  std::string name(field.name);
  if (field.size != nullptr && value.is_number_integer())
    return OverrideSize(config, name, value.get<int64_t>());
  if (field.number != nullptr && value.is_number())
    return OverrideNumber(config, name, value.get<double>());
  if ((field.choose != nullptr || field.text != nullptr) && value.is_string())
    return OverrideChoice(config, name, value.get<std::string>());
  return Error(Diag::kCheckpoint, "the constant {} of the model is {}", name, Dump(value));
}

// Splits `tokens=... seq_len=16 global_batch=8` by key.
std::map<std::string, std::string> Fields(std::string_view fingerprint) {
  std::map<std::string, std::string> fields;
  for (std::string_view word : Split(fingerprint, ' ')) {
    size_t equals = word.find('=');
    if (equals == std::string_view::npos) continue;
    fields.emplace(word.substr(0, equals), word.substr(equals + 1));
  }
  return fields;
}

std::string KeepBatchHint(const std::string& batch, const ResumeBatch& now) {
  int64_t rows = 0;
  auto [end, error] = std::from_chars(batch.data(), batch.data() + batch.size(), rows);
  if (error != std::errc() || rows < 1) return "resume with the global batch of the checkpoint";
  if (rows % (now.local * now.ranks) == 0)
    return fmt::format("--training.global_batch_size={} keeps it", rows);
  if (rows % now.ranks == 0)
    return fmt::format(
        "--training.global_batch_size={} with --training.local_batch_size={} keeps it", rows,
        rows / now.ranks);
  return fmt::format(
      "no local batch size keeps it on {}; use a mesh whose number of data-parallel ranks divides "
      "{}",
      Counted(now.ranks, "data-parallel rank"), rows);
}

// Collects the differences between two runs; each is a separate error.
class RunComparison {
 public:
  RunComparison(const Checkpoint& checkpoint, const RunState& now)
      : path_(checkpoint.path()), then_(Parse(checkpoint)), now_(ToJson(now)) {}

  void Compare(const std::string& key, std::string_view flag) {
    Compare(then_.contains(key) ? then_[key] : RunJson("none"), now_[key], flag);
  }

  void CompareConstants() {
    // With another family or flavor, which is reported already, most constants differ.
    if (!problems_.empty()) return;
    if (!then_.contains(kConstants) || !then_[kConstants].is_object()) {
      remarks_.push_back(fmt::format(
          "{} was written by an older version, which did not store the constants of "
          "the model; Heddle compares shapes of tensors, but not heads, epsilons and rotary "
          "embedding",
          path_));
      return;
    }
    const RunJson& then = then_[kConstants];
    for (const ConfigField& field : ConfigFields()) {
      std::string name(field.name);
      const RunJson& value = now_[kConstants][name];
      // The version that wrote the checkpoint did not have this constant.
      if (!then.contains(name)) {
        remarks_.push_back(fmt::format("{} does not state model.{}, which is {} in this job", path_,
                                       name, FlagText(value)));
        continue;
      }
      Compare(then[name], value, field.flag());
    }
  }

  void CompareData(const ResumeBatch& batch) {
    std::string then = then_.contains("data") ? FlagText(then_["data"]) : "none";
    std::string now = FlagText(now_["data"]);
    if (then == now) return;
    std::map<std::string, std::string> before = Fields(then);
    std::string differ;
    bool batch_alone = true;
    for (const auto& [key, value] : Fields(now)) {
      std::string old = before.contains(key) ? before[key] : "none";
      if (old == value) continue;
      batch_alone = batch_alone && key == "global_batch";
      differ +=
          fmt::format("{}{} {}, but this job has {}", differ.empty() ? "" : "; ", key, old, value);
    }
    if (batch_alone && before.contains("global_batch") && !differ.empty()) {
      Fail(
          fmt::format("{} was trained with a global batch of {} sequences, but this job has {}; {}",
                      path_, before["global_batch"], Fields(now)["global_batch"],
                      KeepBatchHint(before["global_batch"], batch)));
      return;
    }
    Fail(fmt::format(
        "{} was trained on other data: {}", path_,
        differ.empty() ? fmt::format("`{}`, but this job has `{}`", then, now) : differ));
  }

  // The state of one optimizer is of no use to another. Older versions had AdamW only.
  void CompareOptimizer() {
    auto name_in = [](const RunJson& run) -> RunJson {
      bool stated = run.contains("settings") && run["settings"].is_object() &&
                    run["settings"].contains(kOptimizer);
      return stated ? run["settings"][kOptimizer] : RunJson("AdamW");
    };
    Compare(name_in(then_), name_in(now_), fmt::format("--{}", kOptimizer));
  }

  void CompareSettings() {
    if (!then_.contains("settings") || !then_["settings"].is_object()) return;
    for (const auto& [key, value] : now_["settings"].items()) {
      if (key == kOptimizer) continue;
      const RunJson& then = then_["settings"];
      if (!then.contains(key) || then[key] == value) continue;
      remarks_.push_back(fmt::format("--{} is {}, but the checkpoint was trained with {}", key,
                                     FlagText(value), FlagText(then[key])));
    }
  }

  Result<std::vector<std::string>> Take() {
    if (!problems_.empty()) return Failure{std::move(problems_)};
    return std::move(remarks_);
  }

 private:
  void Compare(const RunJson& then, const RunJson& now, std::string_view flag) {
    if (then == now) return;
    Fail(
        fmt::format("{0} was trained with {1}={2}, this job has {3}; resume with {1}={2}, or "
                    "begin in another --checkpoint.folder",
                    path_, flag, FlagText(then), FlagText(now)));
  }
  void Fail(const std::string& what) {
    problems_.push_back(MakeDiagnostic(Diag::kCheckpoint, "{}", what));
  }

  std::string path_;
  RunJson then_;
  RunJson now_;
  std::vector<std::string> remarks_;
  Diagnostics problems_;
};

}  // namespace

std::string FormatRunState(const RunState& state) { return Dump(ToJson(state)); }

Result<SavedRunState> ReadRunState(const Checkpoint& checkpoint) {
  RunJson state = Parse(checkpoint);
  SavedRunState saved;
  if (state.contains("text") && state["text"].is_boolean()) saved.text = state["text"];
  if (state.contains(kLargestToken) && state[kLargestToken].is_number_integer())
    saved.largest_token = state[kLargestToken].get<int64_t>();
  if (!state.contains(kConstants) || !state[kConstants].is_object()) return saved;
  std::string family = state.contains("model") ? FlagText(state["model"]) : "";
  auto known = std::ranges::find(Families(), family, [](const Family* f) { return f->name; });
  if (known == Families().end())
    return Error(Diag::kCheckpoint, "{} has model `{}`, which this version does not have",
                 checkpoint.path(), family);
  std::string flavor = state.contains("flavor") ? FlagText(state["flavor"]) : "";
  // Constants that the checkpoint lacks have the flavor's values.
  Result<ModelConfig> usual = FindModel(family, flavor);
  ModelConfig config = usual.ok() ? *usual : ModelConfig();
  config.family = *known;
  config.flavor = flavor;
  for (const ConfigField& field : ConfigFields()) {
    std::string name(field.name);
    if (!state[kConstants].contains(name)) continue;
    HEDDLE_RETURN_IF_ERROR(SetConstant(config, field, state[kConstants][name]));
  }
  saved.config = std::move(config);
  return saved;
}

Result<std::vector<std::string>> CheckSameRun(const Checkpoint& checkpoint, const RunState& now,
                                              const ResumeBatch& batch) {
  RunComparison comparison(checkpoint, now);
  comparison.Compare("model", "--model");
  comparison.Compare("flavor", "--flavor");
  comparison.CompareConstants();
  comparison.Compare("seed", "--debug.seed");
  comparison.CompareData(batch);
  comparison.CompareOptimizer();
  comparison.CompareSettings();
  return comparison.Take();
}

std::vector<std::string> DifferentConstants(const ModelConfig& a, const ModelConfig& b) {
  RunJson of_a = ConstantsOf(a);
  RunJson of_b = ConstantsOf(b);
  std::vector<std::string> names;
  for (const auto& [name, value] : of_a.items()) {
    if (of_b[name] != value)
      names.push_back(fmt::format("{} {} and {}", name, FlagText(value), FlagText(of_b[name])));
  }
  return names;
}

}  // namespace heddle::run
