// Formatting and comparing short texts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

void AppendInt(std::string& out, int64_t value);
// The shortest digits that read back as `value`. They always contain `.`, `e`, `inf` or `nan`, so
// that they never read as an integer.
void AppendFloat(std::string& out, double value);
// `text` in double quotes, with `"`, `\` and control bytes escaped.
void AppendQuoted(std::string& out, std::string_view text);
std::string Quoted(std::string_view text);

// Formats 8030261248 as `8,030,261,248`.
std::string WithCommas(int64_t value);
// `1 rank`, `64 ranks`.
std::string Counted(int64_t count, std::string_view what);
std::string Counted(size_t count, std::string_view what);

// The candidate with the fewest edits to `name`; empty if none is close enough for a typing error.
std::string_view Nearest(std::string_view name, std::span<const std::string_view> candidates);
// "; nearest is `x`", the end of a message about an unknown name, or empty.
std::string NearestHint(std::string_view name, std::span<const std::string_view> candidates);

std::string_view Trim(std::string_view text);
std::vector<std::string_view> Split(std::string_view text, char separator);
std::string Join(std::span<const std::string_view> parts, std::string_view separator);

}  // namespace heddle
