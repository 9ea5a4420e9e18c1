#include "heddle/core/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace heddle {
namespace {
thread_local CrashHook crash_hook;
}  // namespace

CrashHook SetCrashHook(CrashHook hook) {
  CrashHook previous = crash_hook;
  crash_hook = hook;
  return previous;
}

void CheckFailed(const char* condition, const char* file, int line, const std::string& message) {
  std::fprintf(stderr, "heddle: internal check failed at %s:%d: %s: %s\n", file, line, condition,
               message.c_str());
  std::fflush(stderr);
  // Cleared first: a check that fails inside the hook must not run it again.
  CrashHook hook = SetCrashHook({});
  if (hook.run != nullptr) hook.run(hook.context);
  std::abort();
}

}  // namespace heddle
