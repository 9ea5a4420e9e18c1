// Delta debugging: makes a module smaller while something still goes wrong with it in the same way.
#pragma once

#include <functional>
#include <string>

#include "heddle/compile/manager/pipeline.h"
#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"

namespace heddle::compile {

struct ReduceModuleOptions {
  // What a failing trial prints; empty for anything.
  std::string error;
  // A failing trial dies: by a signal, or because a sanitizer ends it.
  bool crash = false;
  // A trial that runs longer counts as not failing.
  Nanos trial_limit{10'000'000'000};
  // Called each time that the module becomes smaller.
  std::function<void(size_t nodes, size_t trials)> progress;
};

// What goes wrong with a module, in words; empty if nothing does. It runs in a process of its own, and may crash.
using Trial = std::function<std::string(const Module&)>;

// Fails if the trial does not find that error in `module` itself.
Result<Module> ReduceModule(const Module& module, const Trial& trial,
                            const ReduceModuleOptions& options);
// The same where the trial is to run a pipeline.
Result<Module> ReduceModule(const Module& module, const Pipeline& pipeline,
                            const ReduceModuleOptions& options);

}  // namespace heddle::compile
