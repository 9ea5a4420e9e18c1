// HEDDLE_CHECK: a condition that fails only because of a bug in Heddle. On failure it prints the
// condition, the location and the message, runs the crash hook and aborts, or calls the host
// (host.h). The pass manager's hook writes a reproducer.
#pragma once

#include <string>

namespace heddle {

// `hook(context)` runs once before the abort. Thread-local; the code that sets it restores the
// previous one.
struct CrashHook {
  void (*run)(void* context) = nullptr;
  void* context = nullptr;
};
CrashHook SetCrashHook(CrashHook hook);

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line,
                              const std::string& message);

}  // namespace heddle

// The condition has its own variable because clang-tidy wants `!(a || b)` rewritten.
#define HEDDLE_CHECK(condition, message)                                           \
  do {                                                                             \
    if (const bool holds = static_cast<bool>(condition); !holds) [[unlikely]]      \
      ::heddle::CheckFailed(#condition, __FILE__, __LINE__, std::string(message)); \
  } while (false)
