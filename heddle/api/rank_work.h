// Functions for jobs whose ranks are processes.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "heddle/core/ir/mesh.h"
#include "heddle/run/runtime/process/peers.h"
#include "heddle/run/runtime/process/process_transport.h"
#include "heddle/run/runtime/rank_program.h"
#include "heddle/run/verify/verify.h"

namespace heddle {

// Connects to the other ranks and runs `work` as one of them. After a failure, notifies the
// observer and the other ranks, then waits for the others to end.
template <typename T, typename Observer>
Result<T> WorkAsRank(const run::PeerAddress& address, std::chrono::milliseconds timeout,
                     const std::function<Result<T>(run::Peers&)>& work, Observer& observer) {
  auto notice = [&](const std::string& line) { observer.Note(line); };
  HEDDLE_TRY(std::unique_ptr<run::Peers> peers, run::Peers::Meet(address, timeout, notice));
  Result<T> done = work(*peers);
  if (done.ok()) return done;
  peers->watch().Fail(done.diagnostics()[0].message);
  observer.Failed(done.diagnostics());
  return done;
}

// Fails unless there is one process per rank of the mesh.
Status CheckProcesses(int64_t processes, const Mesh& mesh);

// Returns options for running one rank in this process.
Result<run::RankProgramOptions> OwnRank(run::Peers& peers, const Module& module,
                                        c10::Device device);

// Combines comparisons: sums the counts, and takes the difference of the lowest rank that has one.
run::Share<run::Comparison> ShareComparison(run::Peers& peers);
// Takes the finding of the first step, on its lowest rank.
run::Share<std::optional<run::NodeFinding>> ShareOrigin(run::Peers& peers);

}  // namespace heddle
