// Watch: monitors which ranks of a job are alive. Every rank sends heartbeats and reads those of
// the others, so that a timeout can name the missing ranks.
//
// It has its own connection to the store and its own thread. If the store does not answer, because
// its process was stopped, only this thread hangs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/run/runtime/process/store.h"

namespace heddle::run {

class Watch {
 public:
  // The store is held by rank 0, or else by the launcher. `hosts` has the machine of each rank.
  Watch(StorePtr store, bool rank_0_serves, int64_t rank, std::vector<std::string> hosts);
  // Reports that this rank has ended.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Returns the key of a rank's heartbeat. It exists from the moment the rank has connected.
  static std::string KeyOf(int64_t rank);

  // Returns `rank 3`, or `rank 3 on node1` if the ranks have several machines.
  std::string NameOf(int64_t rank) const;
  // Returns `2, 3`, or `2 on node0, 3 on node1`.
  std::string NamesOf(const std::vector<int64_t>& ranks) const;
  // Reports why this rank fails, before it ends.
  void Fail(const std::string& why);
  // Returns a sentence that lists the ranks of `group` that are silent, have ended or failed; empty
  // if all are alive. Takes a moment, to distinguish silence from delay.
  std::string Missing(const std::vector<int64_t>& group) const;
  // Waits until all others have ended or gone silent.
  void WaitForOthers() const;

 private:
  struct State;
  static void Beat(const std::shared_ptr<State>& state);

  // Shared with the thread, which outlives this object if it hangs in the store.
  std::shared_ptr<State> state_;
};

}  // namespace heddle::run
