// Writing and comparing small pieces of text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

void AppendInt(std::string& out, int64_t value);
// The shortest digits that read back as `value`, always with a `.`, an `e`, `inf` or `nan`, so that it never reads as
// an integer.
void AppendFloat(std::string& out, double value);
// `text` in double quotes; `"`, `\` and control bytes are escaped.
void AppendQuoted(std::string& out, std::string_view text);
std::string Quoted(std::string_view text);

// 8030261248 as `8,030,261,248`.
std::string WithCommas(int64_t value);
// `1 rank`, `64 ranks`.
std::string Counted(int64_t count, std::string_view what);
std::string Counted(size_t count, std::string_view what);

// The candidate with the fewest edits to `name`, or empty when none is near enough to be a likely slip.
std::string_view Nearest(std::string_view name, std::span<const std::string_view> candidates);
// `; nearest is `x`` or nothing: the tail of a message about an unknown name.
std::string NearestHint(std::string_view name, std::span<const std::string_view> candidates);

std::string_view Trim(std::string_view text);
std::vector<std::string_view> Split(std::string_view text, char separator);
std::string Join(std::span<const std::string_view> parts, std::string_view separator);

}  // namespace heddle
