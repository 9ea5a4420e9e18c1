// Watch: who of the ranks of a job is there. Every rank gives a sign at intervals, and reads those of the others, so that a rank that
// waits in vain can say for whom.
//
// It has a connection to the store and a thread of its own. A store that does not answer, because the process that holds it was
// stopped, holds up nobody else.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "heddle/run/runtime/process/store.h"

namespace heddle::run {

class Watch {
 public:
  // `holder` is the process that holds the store, for messages.
  Watch(StorePtr store, std::string holder, int64_t rank, int64_t ranks);
  // Says that this rank has ended.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // The key of a rank's sign: it exists from the moment at which the rank has come.
  static std::string KeyOf(int64_t rank);

  // What this rank tells the others before it ends: they know more than silence.
  void Fail(const std::string& why);
  // Which of `group` do not answer, have ended or failed, as a sentence; empty if all seem well. Takes a moment: silence has to last.
  std::string Missing(const std::vector<int64_t>& group) const;
  // Waits until all others have ended or gone silent.
  void WaitForOthers() const;

 private:
  struct State;
  static void Beat(const std::shared_ptr<State>& state);

  // The thread has it, too: one that hangs in the store outlives this object.
  std::shared_ptr<State> state_;
};

}  // namespace heddle::run
