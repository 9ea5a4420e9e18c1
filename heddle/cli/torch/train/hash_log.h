// Hashes of what ranks hold behind every step, for --hashes. Where ranks are processes, rank 0 writes those of all.
#pragma once

#include <string>

#include "heddle/cli/cli.h"
#include "heddle/cli/torch/train/train_flags.h"
#include "heddle/runtime/process/peers.h"

namespace heddle {

class HashLog {
 public:
  // `peers` is null if all ranks are in this process. Does nothing unless the flags ask for hashes.
  Status Add(const TrainFlags& flags, const Session& session, const Model& model, Peers* peers);
  Status Write(const TrainFlags& flags, const Peers* peers, const Streams& streams) const;

 private:
  std::string lines_;
};

}  // namespace heddle
