// Plain tables for terminals.
#pragma once

#include <string>
#include <vector>

namespace heddle {

class TextTable {
 public:
  // Columns whose name ends in `>` are aligned to the right.
  explicit TextTable(std::vector<std::string> columns);

  void AddRow(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }
  // With a header line, each line indented by `indent` spaces.
  std::string Format(size_t indent = 0) const;

 private:
  std::vector<std::string> columns_;
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace heddle
