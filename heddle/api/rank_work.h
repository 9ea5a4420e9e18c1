// Functions for jobs whose ranks are processes.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "heddle/core/ir/mesh.h"
#include "heddle/run/runtime/process/peers.h"
#include "heddle/run/runtime/process/process_transport.h"
#include "heddle/run/runtime/world.h"
#include "heddle/run/verify/verify.h"

namespace heddle {

// Meets the other ranks and does `work` as one of them. If it fails, the observer and the other
// ranks are told before this process waits for the others to end.
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

// Fails unless there is a process for every rank of the mesh.
Status CheckProcesses(int64_t processes, const Mesh& mesh);

// For a world of which this process has one rank.
Result<run::WorldOptions> OwnRank(run::Peers& peers, const Module& module, c10::Device device);

// The sums of all, and the difference of the lowest rank that has one.
run::Share<run::Comparison> ShareComparison(run::Peers& peers);
// The one of the lowest rank.
run::Share<std::optional<run::NodeFinding>> ShareOrigin(run::Peers& peers);

}  // namespace heddle
