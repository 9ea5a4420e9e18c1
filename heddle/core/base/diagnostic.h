// What a user did wrong, as data: a kind from diagnostics.def, a message, and a position in a text.
//
// Wording: lower case, no final period, the observed fact first with both numbers, a hint after a semicolon.
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
  // Empty, and 0, where there is no text to point at. Lines and columns count from 1.
  std::string file;
  uint32_t line = 0;
  uint32_t column = 0;
  // The line itself, or the part of it that begins at `source_begin`; and how many characters the caret underlines.
  std::string source;
  uint32_t source_begin = 0;
  uint32_t width = 1;
};
using Diagnostics = std::vector<Diagnostic>;

// `file:line:col: message [kind]`, then the source line and a caret under it, if there is one. Ends in a newline.
std::string Format(const Diagnostic& diagnostic);
std::string Format(const Diagnostics& diagnostics);

// A text that diagnostics point into.
class SourceText {
 public:
  SourceText(std::string_view file, std::string_view text) : file_(file), text_(text) {}

  // The 1-based number of the line that byte `offset` is in.
  uint32_t Line(size_t offset) const;
  // Points `diagnostic` at `width` bytes from `offset` on.
  Diagnostic At(Diagnostic diagnostic, size_t offset, size_t width = 1) const;
  std::string_view text() const { return text_; }

 private:
  std::string_view file_;
  std::string_view text_;
  // Where each line begins. Made at the first question: most texts have no mistakes.
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
