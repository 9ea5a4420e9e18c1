#include "heddle/run/capture/scope.h"

#include <string>

namespace heddle::run {
namespace {
// Thread-local, like the calls that it describes.
thread_local std::string scope_path;
}  // namespace

ScopeGuard::ScopeGuard(std::string_view name) : outer_length_(scope_path.size()) {
  if (!scope_path.empty()) scope_path += '.';
  scope_path += name;
}

ScopeGuard::~ScopeGuard() { scope_path.resize(outer_length_); }

std::string_view CurrentScope() { return scope_path; }

}  // namespace heddle::run
