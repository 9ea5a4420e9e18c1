// Tables and colors for terminals.
#pragma once

#include <string>
#include <vector>

namespace heddle {

inline constexpr const char* kGreen = "\x1b[32m";
inline constexpr const char* kRed = "\x1b[31m";
inline constexpr const char* kPlain = "\x1b[0m";

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
