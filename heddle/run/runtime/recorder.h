// Recording runs of a graph: the first runs launch node after node, one is recorded, and later ones
// replay it.
//
// A recording has the addresses of its tensors and all numbers that nodes read from the host. So
// inputs stay the same tensors from run to run, and everything that changes between runs is in
// their contents.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/run/runtime/world.h"

namespace heddle::run {

class RecordedRun {
 public:
  virtual ~RecordedRun() = default;
  // Runs the recorded work once.
  virtual Status Replay() = 0;
  // By rank of this process: the same tensors after every replay.
  virtual const std::vector<Tensors>& outputs() const = 0;
};

// Recordings of one recorder share memory. A tensor of theirs is valid until another of them is
// replayed, unless it existed when that one was recorded.
class RunRecorder {
 public:
  virtual ~RunRecorder() = default;
  // Runs the graph as launches, in the memory that recordings use.
  virtual Result<std::vector<Tensors>> Run(const World& world,
                                           std::span<const Tensors> inputs_by_rank) = 0;
  // Records a run without running it: nothing is computed or updated. Fails with the node that
  // cannot be recorded.
  virtual Result<std::unique_ptr<RecordedRun>> Record(const World& world,
                                                      std::span<const Tensors> inputs_by_rank) = 0;
};

// Why runs of this world must not be recorded, although recording would succeed: ranks on several
// threads, or a node that reads a number from the host, draws random numbers, or moves tensors
// between processes.
std::optional<std::string> RecordingObstacle(const World& world);

// The runs of one graph with a recorder.
class StepReplay {
 public:
  enum class Mode : uint8_t { kWarmUp, kRecord };

  // A recording, or launches where the graph cannot be recorded. `mode` counts until there is a
  // recording: kWarmUp launches, kRecord records and replays. Later runs need the tensors that were
  // recorded.
  Result<std::vector<Tensors>> Run(RunRecorder& recorder, const World& world,
                                   std::span<const Tensors> inputs_by_rank, Mode mode);
  // Why the graph runs as launches: the node and the reason.
  const std::optional<std::string>& refusal() const { return refusal_; }
  bool is_recorded() const { return recorded_ != nullptr; }

 private:
  Result<std::vector<Tensors>> Recorded(std::span<const Tensors> inputs_by_rank);

  std::unique_ptr<RecordedRun> recorded_;
  // Addresses of all inputs when it was recorded.
  std::vector<const void*> addresses_;
  std::optional<std::string> refusal_;
};

}  // namespace heddle::run
