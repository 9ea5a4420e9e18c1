// Delta debugging: makes a module smaller while a pipeline still fails on it in the same way.
#pragma once

#include <functional>
#include <string>

#include "heddle/base/result.h"
#include "heddle/base/units.h"
#include "heddle/pass/pipeline.h"

namespace heddle {

struct ReduceOptions {
  // What a failing trial prints; empty for anything.
  std::string error;
  // A failing trial dies: by a signal, or because a sanitizer ends it.
  bool crash = false;
  // A trial that runs longer counts as not failing.
  Nanos trial_limit{10'000'000'000};
  // Called when the module became smaller.
  std::function<void(size_t nodes, size_t trials)> progress;
};

// Fails if the pipeline does not fail so on `module` itself.
Result<Module> ReduceModule(const Module& module, const Pipeline& pipeline,
                            const ReduceOptions& options);

}  // namespace heddle
