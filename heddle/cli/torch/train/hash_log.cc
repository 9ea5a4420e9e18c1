#include "heddle/cli/torch/train/hash_log.h"

#include "heddle/verify/hashes.h"

namespace heddle {

Status HashLog::Add(const TrainFlags& flags, const Session& session, const Model& model,
                    Peers* peers) {
  if (flags.hashes.empty()) return Done{};
  std::string own = HashLines(session, model.params, flags.hash_gradients);
  if (peers == nullptr) {
    lines_ += own;
    return Done{};
  }
  HEDDLE_TRY(std::vector<std::string> all, peers->Exchange(own));
  for (const std::string& lines : all) lines_ += lines;
  return Done{};
}

Status HashLog::Write(const TrainFlags& flags, const Peers* peers, const Streams& streams) const {
  if (flags.hashes.empty() || (peers != nullptr && peers->rank() != 0)) return Done{};
  return WriteOutput(flags.hashes, lines_, streams);
}

}  // namespace heddle
