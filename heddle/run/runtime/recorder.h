// Records runs of a graph: the first runs launch node by node, one run is recorded, and later runs
// replay it.
//
// A recording contains the addresses of its tensors and all numbers that nodes read from the host.
// So the inputs are the same tensors in every run, and data that changes must be in their contents.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/run/runtime/rank_program.h"

namespace heddle::run {

class RecordedRun {
 public:
  virtual ~RecordedRun() = default;
  // Runs the recorded work once.
  virtual Status Replay() = 0;
  // Outputs by rank of this process: the same tensors after every replay.
  virtual const std::vector<Tensors>& outputs() const = 0;
};

// Recordings of one recorder share memory. Replaying one invalidates tensors of the others, except
// those that existed when it was recorded.
class RunRecorder {
 public:
  virtual ~RunRecorder() = default;
  // Launches the graph node by node, in the memory that recordings use.
  virtual Result<std::vector<Tensors>> Run(const RankProgram& program,
                                           std::span<const Tensors> inputs_by_rank) = 0;
  // Records a run without computing or updating anything. Fails with the node that cannot be
  // recorded.
  virtual Result<std::unique_ptr<RecordedRun>> Record(const RankProgram& program,
                                                      std::span<const Tensors> inputs_by_rank) = 0;
};

// Returns why runs of this graph must not be recorded, although recording would succeed: ranks run
// on several threads, or a node reads a number from the host, draws random numbers, or moves
// tensors between processes. nullopt if there is no obstacle.
std::optional<std::string> RecordingObstacle(const RankProgram& program);

// The runs of one graph with a recorder.
class StepReplay {
 public:
  enum class Mode : uint8_t { kWarmUp, kRecord };

  // Runs the graph from its recording, or with launches if it cannot be recorded. `mode` applies
  // until a recording exists: kWarmUp launches, kRecord records and replays. Later runs must pass
  // the recorded tensors.
  Result<std::vector<Tensors>> Run(RunRecorder& recorder, const RankProgram& program,
                                   std::span<const Tensors> inputs_by_rank, Mode mode);
  // Why the graph runs with launches: the node and the reason.
  const std::optional<std::string>& refusal() const { return refusal_; }
  bool is_recorded() const { return recorded_ != nullptr; }

 private:
  Result<std::vector<Tensors>> Recorded(std::span<const Tensors> inputs_by_rank);

  std::unique_ptr<RecordedRun> recorded_;
  // Addresses of all inputs when the run was recorded.
  std::vector<const void*> addresses_;
  std::optional<std::string> refusal_;
};

}  // namespace heddle::run
