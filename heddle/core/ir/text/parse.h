// Text to graphs. The grammar is in docs/ir.md.
//
// The parser is generic over op schemas. It goes on after a mistake, at the next node, so that one reading reports all
// of them; a value whose definition could not be read is known by name but has no type, and is not complained about again.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

// Where the parts of a module stand in the text it was read from: byte offsets.
struct GraphSource {
  size_t header = 0;
  std::vector<size_t> inputs;
  std::vector<size_t> nodes;
  std::vector<size_t> outputs;
};

struct Source {
  std::string file;
  std::string text;
  std::vector<GraphSource> graphs;
};

struct Parsed {
  Module module;
  Source source;
  // Empty if the text is well formed. What they touch is missing from `module`, or has no type.
  Diagnostics diagnostics;
};

Parsed ParseText(std::string text, std::string file, const OpTable& ops);

}  // namespace heddle
