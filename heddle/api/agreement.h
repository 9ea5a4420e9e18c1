// The comparison of ranks before the first step: program, flags, files, initial state.
#pragma once

#include <string>

#include "heddle/core/base/hash.h"
#include "heddle/run/runtime/process/peers.h"
#include "heddle/run/train/session.h"

namespace heddle {

// Fails on every rank unless all run the same program with the same flags, and names a rank and its
// flags that differ. `flags` has a line for each, `--name=value`; flags about a rank's own output
// may differ. `facts` are lines about the files that flags name: graphs, data.
Status AgreeOnJob(run::Peers& peers, std::string_view flags, const std::string& facts);

// A hash of the tensors that a run begins with, taken while they are read.
class StateHash {
 public:
  // Sources that add every tensor that they return. This object must outlive them.
  run::ParamSource Adding(run::ParamSource source);
  run::SavedState Adding(run::SavedState saved);
  void Add(const at::Tensor& tensor);

  // Fails on every rank unless all have added the same tensors. `from` is their source, for the
  // message.
  Status Agree(run::Peers& peers, const std::string& from) const;

 private:
  Hasher128 hasher_;
};

}  // namespace heddle
