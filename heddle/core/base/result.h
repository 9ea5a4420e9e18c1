// Result<T>: a value, or the diagnostics that explain its absence. Status is a Result without a
// value.
#pragma once

#include <optional>
#include <utility>

#include "heddle/core/base/check.h"
#include "heddle/core/base/diagnostic.h"

namespace heddle {

// An error that converts to a Result<T> of any T.
struct [[nodiscard]] Failure {
  Diagnostics diagnostics;
};

template <typename... Args>
Failure Error(Diag kind, fmt::format_string<Args...> format, Args&&... args) {
  return {{MakeDiagnostic(kind, format, std::forward<Args>(args)...)}};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit, so that `return value;` works
  Result(Failure failure) : diagnostics_(std::move(failure.diagnostics)) {}  // NOLINT: likewise

  bool ok() const { return value_.has_value(); }
  const Diagnostics& diagnostics() const { return diagnostics_; }
  Diagnostics& diagnostics() { return diagnostics_; }
  Failure failure() && { return {std::move(diagnostics_)}; }

  T& operator*() & { return Checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->Checked(); }
  T&& operator*() && { return std::move(Checked()); }
  T* operator->() { return &Checked(); }
  const T* operator->() const { return &**this; }

 private:
  T& Checked() {
    HEDDLE_CHECK(ok(), Format(diagnostics_));
    return *value_;
  }

  std::optional<T> value_;
  Diagnostics diagnostics_;
};

struct Done {};
using Status = Result<Done>;

}  // namespace heddle

// HEDDLE_TRY(auto x, F()): sets x to F's value, or returns F's diagnostics from this function.
#define HEDDLE_TRY(declaration, expression) \
  HEDDLE_TRY_IMPL(HEDDLE_CONCAT(heddle_result_, __LINE__), declaration, expression)
#define HEDDLE_TRY_IMPL(result, declaration, expression) \
  auto result = (expression);                            \
  if (!result.ok()) return std::move(result).failure();  \
  declaration = *std::move(result)
#define HEDDLE_RETURN_IF_ERROR(expression)                      \
  do {                                                          \
    if (auto heddle_status = (expression); !heddle_status.ok()) \
      return std::move(heddle_status).failure();                \
  } while (false)
#define HEDDLE_CONCAT(a, b) HEDDLE_CONCAT_IMPL(a, b)
#define HEDDLE_CONCAT_IMPL(a, b) a##b
