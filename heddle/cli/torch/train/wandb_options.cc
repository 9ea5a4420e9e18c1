#include "heddle/cli/torch/train/wandb_options.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "heddle/cli/cli.h"
#include "heddle/cli/flags/job_file.h"
#include "heddle/cli/torch/train/run_settings.h"
#include "heddle/core/base/hash.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

using ConfigJson = nlohmann::ordered_json;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

ConfigJson ToJson(const JobValue& value) {
  const std::string& text = value.texts.empty() ? "" : value.texts[0];
  switch (value.kind) {
    case JobValueKind::kText: return text;
    case JobValueKind::kTexts: return value.texts;
    case JobValueKind::kBool: return text == "true";
    default: {
      ConfigJson number = ConfigJson::parse(text, nullptr, /*allow_exceptions=*/false);
      return number.is_number() ? number : ConfigJson(text);
    }
  }
}

// `training.steps` becomes `steps` of `training`, as in TorchTitan's configuration.
ConfigJson ConfigOf(const std::vector<JobEntry>& job) {
  ConfigJson config = ConfigJson::object();
  for (const JobEntry& entry : job) {
    ConfigJson* at = &config;
    for (std::string_view part : Split(entry.key, '.')) at = &(*at)[std::string(part)];
    *at = ToJson(entry.value);
  }
  return config;
}

// What distinguishes a run from others, and stays the same when it resumes: on another mesh, or for
// more steps.
std::string IdentityOf(const std::vector<JobEntry>& job, const std::string& text) {
  constexpr std::string_view kOthers[] = {"flavor",           "tokenizer",         "debug.seed",
                                          "training.dataset", "checkpoint.folder", "metrics.wandb"};
  std::string lines;
  for (const auto& [key, value] : RunSettings(text)) {
    if (key != "training.steps") lines += fmt::format("{}={}\n", key, value);
  }
  for (const JobEntry& entry : job) {
    if (entry.key.starts_with("model") || entry.key.starts_with("lora.") ||
        std::ranges::find(kOthers, entry.key) != std::end(kOthers))
      lines += fmt::format("{}={}\n", entry.key, fmt::join(entry.value.texts, ","));
  }
  return lines;
}

}  // namespace

Result<run::WandbOptions> WandbOptionsOf(const std::string& folder, const std::string& job) {
  HEDDLE_TRY(std::vector<JobEntry> entries, ParseJob("job.toml", job));
  run::WandbOptions options{.folder = folder, .version = std::string(Version())};
  options.job = fmt::format("{:016x}", Hash64(IdentityOf(entries, job))).substr(0, 10);
  options.id = Variable("WANDB_RUN_ID");
  if (options.id.find_first_of(":;,#?/' \t\n") != std::string::npos)
    return Error(Diag::kEnvironment,
                 "WANDB_RUN_ID is `{}`; ids of Weights & Biases have no spaces and none of :;,#?/'",
                 options.id);
  options.project = Variable("WANDB_PROJECT");
  if (options.project.empty()) options.project = "heddle";
  options.entity = Variable("WANDB_ENTITY");
  options.name = Variable("WANDB_NAME");
  ConfigJson config = ConfigOf(entries);
  for (const auto& [key, value] : config.items())
    options.config.emplace_back(key,
                                value.dump(-1, ' ', false, ConfigJson::error_handler_t::replace));
  return options;
}

}  // namespace heddle
