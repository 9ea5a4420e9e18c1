// Import: graphs of other programs as modules of Heddle.
//
// Files: what PyTorch prints of an FX graph and Inductor's repros (read/fx_reader.h), archives and JSON of torch.export
// (read/exported_program.h), and the same JSON with a header of ours for other exporters. docs/import.md is for users.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

struct ImportOptions {
  // Where the ranks of process groups are: a mesh, and the axes of each group by its name. Without a mesh, groups get axes of
  // their own.
  std::string mesh;
  std::vector<std::pair<std::string, std::string>> groups;
  // What a size that is read from a tensor is taken for.
  int64_t hint = 512;
  // The graph is a global one, of the whole step before it is spread over ranks.
  bool global = false;
  // Inputs that are parameters, where the file does not state roles: names with `*` for any text,
  // numbers from 0, or ranges of numbers.
  std::vector<std::string> params = {};
};

// What the file had, as its writer counts.
struct ImportCounts {
  size_t placeholders = 0;
  size_t statements = 0;
  // Statements that name one of the results of another.
  size_t items = 0;
  size_t outputs = 0;
  size_t opaque = 0;
};

struct Imported {
  Module module;
  ImportCounts counts;
  // What was assumed or lost, one sentence each.
  std::vector<std::string> remarks;
};

// Reads only the graph's JSON of an archive: its weights may be of any size.
Result<Imported> ImportFile(const std::string& path, const ImportOptions& options);
// The same for content in memory. `file` is for messages.
Result<Imported> Import(const std::string& bytes, const std::string& file,
                        const ImportOptions& options);

}  // namespace heddle
