// The files of this folder that pages are made of. The binary carries them.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

// By name without its ending: `style`, `page`.
std::string_view PageFile(std::string_view name);
// Puts `text` in the place of the first mark.
void ReplaceMark(std::string& page, std::string_view mark, std::string_view text);
// For text between tags and within quotes.
std::string HtmlText(std::string_view text);

}  // namespace heddle
