// Host: a program that embeds Heddle and must survive its mistakes, such as a Python interpreter.
#pragma once

#include <string>

namespace heddle {

// Functions of the host, which may throw. Exceptions pass through Heddle's code, whose objects
// release what they hold.
struct Host {
  // Called by a failed HEDDLE_CHECK instead of the abort; must throw.
  void (*check_failed)(const std::string& message) = nullptr;
  // Called by long computations every few milliseconds; throws to stop them.
  void (*poll)() = nullptr;
};

// Sets the host of this thread and returns the previous one. By default there is none.
Host SetHost(Host host);
const Host& CurrentHost();

// Lets the host stop the computation.
inline void PollHost() {
  if (auto poll = CurrentHost().poll; poll != nullptr) poll();
}

}  // namespace heddle
