// Embedded files of this folder, from which pages are made.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

// A file by its name without extension: `style`, `page`.
std::string_view PageFile(std::string_view name);
// Replaces the first occurrence of `mark` with `text`.
void ReplaceMark(std::string& page, std::string_view mark, std::string_view text);
// Escapes text for HTML content and quoted attributes.
std::string HtmlText(std::string_view text);

}  // namespace heddle
