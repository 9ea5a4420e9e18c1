// Compares ranks before the first step: program, flags, files and initial state.
#pragma once

#include <string>

#include "heddle/core/base/hash.h"
#include "heddle/run/runtime/process/peers.h"
#include "heddle/run/train/session.h"

namespace heddle {

// Fails on every rank unless all run the same program with the same flags; the error names a rank
// and its flags that differ. `flags` has a line `--name=value` for each flag. Flags about a rank's
// own output may differ. `facts` are lines about the files that flags name: graphs, data.
Status AgreeOnJob(run::Peers& peers, std::string_view flags, const std::string& facts);

// A hash of the tensors that a run begins with, computed while they are read.
class StateHash {
 public:
  // Wraps a source so that every tensor it returns is hashed. This object must outlive the source.
  run::ParamSource Adding(run::ParamSource source);
  run::SavedState Adding(run::SavedState saved);
  void Add(const at::Tensor& tensor);

  // Fails on every rank unless all ranks of a group have hashed the same tensors. `group` is that
  // of this rank: the coordinates of a pipeline have different tensors. `from` names their source
  // in the error.
  Status Agree(run::Peers& peers, const std::string& from, int64_t group = 0) const;

 private:
  Hasher128 hasher_;
};

}  // namespace heddle
