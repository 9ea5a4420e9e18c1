// ScopeGuard: names the running module, so that a capture can give each op its scope. Model code is
// the same with and without a capture; a guard costs almost nothing outside one.
#pragma once

#include <string_view>

namespace heddle::run {

class ScopeGuard {
 public:
  // Enters a module: inside `layers.0`, a guard for "attention" makes the scope
  // `layers.0.attention`.
  explicit ScopeGuard(std::string_view name);
  ~ScopeGuard();
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  size_t outer_length_;
};

// Returns the scope, empty at the root. Valid until the next guard is created or destroyed.
std::string_view CurrentScope();

}  // namespace heddle::run
