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
  // `holder` names the process that holds the store, for error messages.
  Watch(StorePtr store, std::string holder, int64_t rank, int64_t ranks);
  // Reports that this rank has ended.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Returns the key of a rank's heartbeat. It exists from the moment the rank has connected.
  static std::string KeyOf(int64_t rank);

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
