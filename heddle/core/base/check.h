// HEDDLE_CHECK: a condition whose failure is a bug of ours, never the user's. It prints the
// condition, the place and the message, runs the crash hook (the pass manager writes a reproducer
// there) and aborts, or calls the host (host.h).
#pragma once

#include <string>

namespace heddle {

// `hook(context)` runs once before the abort. Thread-local; restored by whoever set it.
struct CrashHook {
  void (*run)(void* context) = nullptr;
  void* context = nullptr;
};
CrashHook SetCrashHook(CrashHook hook);

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line,
                              const std::string& message);

}  // namespace heddle

// The condition is a value of its own: clang-tidy takes `!(a || b)` for something to be written otherwise.
#define HEDDLE_CHECK(condition, message)                                           \
  do {                                                                             \
    if (const bool holds = static_cast<bool>(condition); !holds) [[unlikely]]      \
      ::heddle::CheckFailed(#condition, __FILE__, __LINE__, std::string(message)); \
  } while (false)
