// Where the parts of a module stand in the text that it was read from.
#pragma once

#include "heddle/core/ir/text/parse.h"

namespace heddle {

// What a diagnostic is about.
struct Subject {
  enum class Kind : uint8_t { kGraph, kInput, kOutput, kNode, kOperand, kResult };
  Kind kind = Kind::kGraph;
  size_t graph = 0;
  // The input, output or node, and the operand or result of the node.
  uint32_t index = 0;
  uint32_t part = 0;
};

struct TextRange {
  size_t offset;
  size_t width;
};

TextRange LocateSubject(const Source& source, const Subject& subject);

}  // namespace heddle
