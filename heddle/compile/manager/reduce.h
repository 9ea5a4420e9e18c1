// Delta debugging: shrinks a module while it still fails in the same way.
#pragma once

#include <functional>
#include <string>

#include "heddle/compile/manager/pipeline.h"
#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"

namespace heddle::compile {

struct ReduceModuleOptions {
  // Text that a failing trial prints; empty accepts any failure.
  std::string error;
  // A failing trial crashes: it dies by a signal, or a sanitizer ends it.
  bool crash = false;
  // A trial that takes longer counts as passing.
  Nanos trial_limit{10'000'000'000};
  // Called whenever the module shrinks.
  std::function<void(size_t nodes, size_t trials)> progress;
};

// Returns the failure of a module as text, or empty. Runs in a child process, and may crash.
using Trial = std::function<std::string(const Module&)>;

// Returns the shrunk module. Fails if `module` itself does not fail in this way.
Result<Module> ReduceModule(const Module& module, const Trial& trial,
                            const ReduceModuleOptions& options);
// The same, for a trial that runs a pipeline.
Result<Module> ReduceModule(const Module& module, const Pipeline& pipeline,
                            const ReduceModuleOptions& options);

}  // namespace heddle::compile
