#include "heddle/core/base/check.h"

#include <cstdio>
#include <cstdlib>

#include "heddle/core/base/host.h"

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
  std::string text = std::string("internal check failed at ") + file + ":" + std::to_string(line) +
                     ": " + condition + ": " + message;
  const Host host = CurrentHost();
  if (host.check_failed == nullptr) {
    std::fprintf(stderr, "heddle: %s\n", text.c_str());
    std::fflush(stderr);
  }
  // Cleared first: a check that fails inside the hook must not run it again.
  CrashHook hook = SetCrashHook({});
  if (hook.run != nullptr) hook.run(hook.context);
  if (host.check_failed != nullptr) host.check_failed(text);
  std::abort();
}

}  // namespace heddle
