// Mistakes as Python's exceptions, and long calls without the interpreter's lock.
#pragma once

#include <utility>

#include <nanobind/nanobind.h>

#include "heddle/core/base/host.h"
#include "heddle/core/base/result.h"

namespace heddle::python {

// Raises heddle.NAME with these diagnostics.
[[noreturn]] void Raise(const char* name, const Diagnostics& diagnostics);

// The value, or an exception of class heddle.NAME.
template <typename T>
T Take(Result<T> result, const char* name = "Error") {
  if (!result.ok()) Raise(name, result.diagnostics());
  return *std::move(result);
}

// While it lives, failed checks of this thread throw, and Python's signal handlers run now and
// then.
class HostScope {
 public:
  HostScope();
  ~HostScope() { SetHost(previous_); }
  HostScope(const HostScope&) = delete;
  HostScope& operator=(const HostScope&) = delete;

 private:
  Host previous_;
};

// Calls `work` without the interpreter's lock; `work` touches no Python objects.
template <typename Work>
auto Unlocked(Work&& work) {
  HostScope host;
  nanobind::gil_scoped_release release;
  return work();
}

// Makes failed checks raise heddle.InternalError.
void BindErrors(nanobind::module_& module);

}  // namespace heddle::python
