// Positions of the parts of a module in its source text.
#pragma once

#include "heddle/core/ir/text/parse.h"

namespace heddle {

// The subject of a diagnostic.
struct Subject {
  enum class Kind : uint8_t { kGraph, kInput, kOutput, kNode, kOperand, kResult };
  Kind kind = Kind::kGraph;
  size_t graph = 0;
  // Index of the input, output or node, and of the node's operand or result.
  uint32_t index = 0;
  uint32_t part = 0;
};

// A range of bytes in a text.
struct TextRange {
  size_t offset;
  size_t width;
};

// The range of a subject in the text of `source`.
TextRange LocateSubject(const Source& source, const Subject& subject);

}  // namespace heddle
