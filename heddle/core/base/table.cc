#include "heddle/core/base/table.h"

#include <algorithm>

namespace heddle {

TextTable::TextTable(std::vector<std::string> columns) : columns_(std::move(columns)) {
  for (std::string& name : columns_) {
    right_.push_back(name.ends_with('>'));
    if (right_.back()) name.pop_back();
  }
}

void TextTable::AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string TextTable::Format(size_t indent) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(columns_[c].size());
    for (const auto& row : rows_) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string out;
  auto line = [&](const std::vector<std::string>& cells) {
    std::string text(indent, ' ');
    for (size_t c = 0; c < cells.size(); ++c) {
      if (c != 0) text += "  ";
      size_t padding = widths[c] - cells[c].size();
      if (right_[c]) text.append(padding, ' ');
      text += cells[c];
      if (!right_[c]) text.append(padding, ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  };
  line(columns_);
  for (const auto& row : rows_) line(row);
  return out;
}

}  // namespace heddle
