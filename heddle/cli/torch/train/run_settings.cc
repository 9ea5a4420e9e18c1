#include "heddle/cli/torch/train/run_settings.h"

#include <algorithm>

#include "heddle/cli/flags/job_file.h"

namespace heddle {
namespace {

// Keys that belong to the data's fingerprint.
constexpr std::string_view kOfData[] = {"training.dataset",          "training.global_batch_size",
                                        "training.local_batch_size", "training.seq_len",
                                        "training.shuffle",          "training.document_boundaries",
                                        "training.document_end"};

// Matches prefixes, so that new flags are included.
bool IsSetting(const std::string& key) {
  if (key == "precision") return true;
  if (std::ranges::find(kOfData, key) != std::end(kOfData)) return false;
  return key.starts_with("optimizer.") || key.starts_with("lr_scheduler.") ||
         key.starts_with("training.");
}

}  // namespace

std::vector<std::pair<std::string, std::string>> RunSettings(const std::string& job) {
  std::vector<std::pair<std::string, std::string>> settings;
  Result<std::vector<JobEntry>> entries = ParseJob("job.toml", job);
  HEDDLE_CHECK(entries.ok(), "the job's own TOML cannot be read");
  auto decays = [](const JobEntry& e) {
    return e.key == "lr_scheduler.decay" && e.value.texts[0] != "none";
  };
  bool steps_matter = std::ranges::any_of(*entries, decays);
  for (const JobEntry& entry : *entries) {
    if (!IsSetting(entry.key) || entry.value.texts.size() != 1) continue;
    // Only a learning rate that decays depends on the number of steps.
    if (entry.key == "training.steps" && !steps_matter) continue;
    settings.emplace_back(entry.key, entry.value.texts[0]);
  }
  return settings;
}

}  // namespace heddle
