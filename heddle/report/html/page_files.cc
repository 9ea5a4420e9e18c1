#include "heddle/report/html/page_files.h"

namespace heddle {
namespace {

struct File {
  std::string_view name;
  std::string_view text;
};
constexpr File kFiles[] = {
#include "heddle/report/html/page_files.inc"
};

}  // namespace

std::string_view PageFile(std::string_view name) {
  for (const File& file : kFiles) {
    if (file.name == name) return file.text;
  }
  return {};
}

void ReplaceMark(std::string& page, std::string_view mark, std::string_view text) {
  size_t at = page.find(mark);
  if (at != std::string::npos) page.replace(at, mark.size(), text);
}

std::string HtmlText(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace heddle
