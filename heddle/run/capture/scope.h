// ScopeGuard: names the module that runs, so that a capture knows where each op belongs. Costs next to nothing when nothing is
// captured: model code runs the same either way.
#pragma once

#include <string_view>

namespace heddle::run {

class ScopeGuard {
 public:
  // Inside `layers.0`, a guard for "attention" makes the scope `layers.0.attention`.
  explicit ScopeGuard(std::string_view name);
  ~ScopeGuard();
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  size_t outer_length_;
};

// Empty at the root. Valid until the next guard is made or gone.
std::string_view CurrentScope();

}  // namespace heddle::run
