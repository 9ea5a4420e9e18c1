// Import: converts graphs of other programs to modules.
//
// It reads FX graphs as PyTorch prints them, Inductor's repro files (read/fx_reader.h), archives
// and JSON of torch.export (read/exported_program.h), and the same JSON with Heddle's header, for
// other exporters. docs/import.md describes it for users.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

struct ImportOptions {
  // A mesh, and the axes of each process group by name. If empty, each group gets its own axes.
  std::string mesh;
  std::vector<std::pair<std::string, std::string>> groups;
  // The value of a size that the program reads from a tensor.
  int64_t hint = 512;
  // The graph is a global one: the whole step before it is partitioned over ranks.
  bool global = false;
  // Inputs that are parameters, where the file does not state roles: names with `*` for any text,
  // numbers from 0, or ranges of numbers.
  std::vector<std::string> params = {};
};

// Counts of the file's contents, as its writer counts them.
struct ImportCounts {
  size_t placeholders = 0;
  size_t statements = 0;
  // Statements that only name one result of another statement.
  size_t items = 0;
  size_t outputs = 0;
  size_t opaque = 0;
};

struct Imported {
  Module module;
  ImportCounts counts;
  // Assumptions and losses, one sentence each.
  std::vector<std::string> remarks;
};

// From an archive, reads only the JSON of the graph, so its weights may have any size.
Result<Imported> ImportFile(const std::string& path, const ImportOptions& options);
// The same for content in memory. `file` is for messages.
Result<Imported> Import(const std::string& bytes, const std::string& file,
                        const ImportOptions& options);

}  // namespace heddle
