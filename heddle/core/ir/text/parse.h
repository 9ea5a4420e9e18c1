// Parses text to graphs. docs/ir.md describes the grammar.
//
// Schemas drive the parser. After a mistake it continues at the next node, so one run reports all
// mistakes. A value whose definition is invalid is known by name but has no type, and causes no
// further errors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

// Byte offsets of the parts of a graph in its source text.
struct GraphSource {
  size_t header = 0;
  std::vector<size_t> inputs;
  std::vector<size_t> nodes;
  std::vector<size_t> outputs;
};

// A text, and the offsets of the graphs in it.
struct Source {
  std::string file;
  std::string text;
  std::vector<GraphSource> graphs;
};

struct Parsed {
  Module module;
  Source source;
  // Empty if the text is well formed. Parts with errors are missing from `module`, or have no type.
  Diagnostics diagnostics;
};

// Parses without verifying. `file` is for messages. `ops` must outlive the module.
Parsed ParseText(std::string text, std::string file, const OpTable& ops);

}  // namespace heddle
