#include "heddle/core/base/diagnostic.h"

#include <algorithm>

namespace heddle {
namespace {
constexpr std::string_view kNames[] = {
#define HEDDLE_DIAGNOSTIC(ident, name) name,
#include "heddle/core/base/diagnostics.def"
#undef HEDDLE_DIAGNOSTIC
};

// Longer lines are truncated around the caret.
constexpr size_t kMaxSource = 160;
constexpr size_t kMaxName = 200;

// Appends `name`, truncated if it is too long, but never within a UTF-8 character.
void AppendCut(std::string& out, std::string_view name) {
  if (name.size() <= kMaxName) {
    out += name;
    return;
  }
  size_t end = kMaxName;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) --end;
  out += name.substr(0, end);
  out += "…";
}

// Makes `message` readable: truncates long names and marks empty ones. A name is a run without
// spaces, or text between two backticks.
std::string ReadableNames(const std::string& message) {
  std::string out;
  for (size_t at = 0; at < message.size();) {
    bool quoted = message[at] == '`';
    size_t begin = quoted ? at + 1 : at;
    size_t end = std::min(message.find_first_of(quoted ? "`" : " \n`", begin), message.size());
    if (quoted) out += '`';
    AppendCut(out, std::string_view(message).substr(begin, end - begin));
    if (end < message.size() && (quoted || message[end] != '`')) out += message[end++];
    if (out.ends_with("``")) out += " (empty)";
    at = end;
  }
  return out;
}
}  // namespace

std::string_view Name(Diag kind) { return kNames[static_cast<size_t>(kind)]; }

std::string Format(const Diagnostic& d) {
  std::string out;
  if (!d.file.empty() && d.line != 0) {
    out += fmt::format("{}:{}:{}: ", d.file, d.line, d.column);
  } else if (!d.file.empty()) {
    out += fmt::format("{}: ", d.file);
  }
  out += fmt::format("{} [{}]\n", ReadableNames(d.message), Name(d.kind));
  if (d.line == 0) return out;

  std::string source = d.source;
  // Control bytes would move the caret or the terminal.
  for (char& c : source) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  }
  size_t column = d.column - 1 - d.source_begin;
  out += source;
  out += '\n';
  out.append(column, ' ');
  out += '^';
  size_t room = source.size() > column + 1 ? source.size() - column - 1 : 0;
  out.append(std::min<size_t>(d.width > 0 ? d.width - 1 : 0, room), '~');
  out += '\n';
  return out;
}

std::string Format(const Diagnostics& diagnostics) {
  std::string out;
  for (const Diagnostic& d : diagnostics) out += Format(d);
  return out;
}

uint32_t SourceText::Line(size_t offset) const {
  if (lines_.empty()) {
    lines_.push_back(0);
    for (size_t at = text_.find('\n'); at != std::string_view::npos;
         at = text_.find('\n', at + 1)) {
      lines_.push_back(at + 1);
    }
  }
  return static_cast<uint32_t>(std::upper_bound(lines_.begin(), lines_.end(), offset) -
                               lines_.begin());
}

Diagnostic SourceText::At(Diagnostic diagnostic, size_t offset, size_t width) const {
  offset = std::min(offset, text_.size());
  diagnostic.file = file_;
  diagnostic.line = Line(offset);
  size_t begin = lines_[diagnostic.line - 1];
  size_t end = std::min(text_.find('\n', begin), text_.size());
  diagnostic.column = static_cast<uint32_t>(offset - begin + 1);
  diagnostic.width = static_cast<uint32_t>(width);
  // A hostile file may be one long line: keep only the text near the caret.
  size_t column = offset - begin;
  diagnostic.source_begin = static_cast<uint32_t>(
      end - begin > kMaxSource && column > kMaxSource / 2 ? column - kMaxSource / 2 : 0);
  diagnostic.source = text_.substr(begin + diagnostic.source_begin,
                                   std::min(end - begin - diagnostic.source_begin, kMaxSource));
  return diagnostic;
}

}  // namespace heddle
