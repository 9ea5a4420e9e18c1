// A user error as data: a kind from diagnostics.def, a message, and a position in a text.
//
// Wording: lower case, no final period, the observed fact first with both numbers, then a hint
// after a semicolon.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

namespace heddle {

enum class Diag : uint16_t {
#define HEDDLE_DIAGNOSTIC(ident, name) ident,
#include "heddle/core/base/diagnostics.def"
#undef HEDDLE_DIAGNOSTIC
};

// The kind as printed in brackets after a message: `mm-inner-size`.
std::string_view Name(Diag kind);

struct Diagnostic {
  Diag kind;
  std::string message;
  // Empty and 0 if the error has no position in a text. Lines and columns count from 1.
  std::string file;
  uint32_t line = 0;
  uint32_t column = 0;
  // The source line, or the part of it from column `source_begin` on, and the number of characters
  // that the caret underlines.
  std::string source;
  uint32_t source_begin = 0;
  uint32_t width = 1;
};
using Diagnostics = std::vector<Diagnostic>;

// `file:line:col: message [kind]`, then the source line and a caret under it, if the diagnostic has
// them. Ends with a newline.
std::string Format(const Diagnostic& diagnostic);
std::string Format(const Diagnostics& diagnostics);

// A text that diagnostics refer to.
class SourceText {
 public:
  SourceText(std::string_view file, std::string_view text) : file_(file), text_(text) {}

  // The 1-based number of the line that byte `offset` is in.
  uint32_t Line(size_t offset) const;
  // Returns `diagnostic` with the position of `width` bytes at `offset`.
  Diagnostic At(Diagnostic diagnostic, size_t offset, size_t width = 1) const;
  std::string_view text() const { return text_; }

 private:
  std::string_view file_;
  std::string_view text_;
  // Offsets of line starts. Computed on first use, because most texts have no errors.
  mutable std::vector<size_t> lines_;
};

template <typename... Args>
Diagnostic MakeDiagnostic(Diag kind, fmt::format_string<Args...> format, Args&&... args) {
  Diagnostic diagnostic;
  diagnostic.kind = kind;
  diagnostic.message = fmt::format(format, std::forward<Args>(args)...);
  return diagnostic;
}

}  // namespace heddle
