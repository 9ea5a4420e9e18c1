#include "heddle/api/hash_log.h"

#include "heddle/core/base/file.h"
#include "heddle/run/verify/hashes.h"

namespace heddle {

Status HashLog::Add(const OptimizationOptions& options, const run::TrainingRun& run,
                    const run::Model& model, run::Peers* peers) {
  if (options.hashes.empty()) return Done{};
  std::string own = run::HashLines(run, model.params, options.hash_gradients);
  if (peers == nullptr) {
    lines_ += own;
    return Done{};
  }
  HEDDLE_TRY(std::vector<std::string> all, peers->Exchange(own));
  for (const std::string& lines : all) lines_ += lines;
  return Done{};
}

Status HashLog::Write(const OptimizationOptions& options, const run::Peers* peers) const {
  if (options.hashes.empty() || (peers != nullptr && peers->rank() != 0)) return Done{};
  return WriteFile(options.hashes, lines_);
}

}  // namespace heddle
