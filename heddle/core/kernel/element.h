// Ops that a generated kernel computes element by element, and views that keep elements in order.
//
// Elements are counted in f32 numbers, called lanes here: a complex element has two. A kernel loads
// each operand as f32, evaluates one function for each node, and rounds to the type of its result.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "heddle/core/ir/graph.h"

namespace heddle {

// Lanes that a thread of an elementwise kernel loads together.
inline constexpr int64_t kLanes = 8;

// Lanes of a value; 0 if kernels do not take its type, or its size is a symbol.
int64_t LanesOf(const Graph& graph, ValueId value);

// A view whose elements are those of operand 0 in the same order.
bool IsFlatView(const Graph& graph, NodeId node);
// The value that a chain of flat views begins with.
ValueId SourceOf(const Graph& graph, ValueId value);

// The function of kernels/elements.cu that computes a node, with its operands as `{0}` and `{1}`.
// Nullopt if kernels do not compute this node.
std::optional<std::string_view> ElementText(const Graph& graph, NodeId node);

// The location of a smaller operand's element, given the lane `at` of the result.
struct Broadcast {
  // One number for all kLanes lanes, or kLanes numbers in a row.
  bool uniform = false;
  // The lane of the operand, as an expression of `at`.
  std::string index;
};
// Nullopt if a vector of kLanes lanes would need several loads.
std::optional<Broadcast> BroadcastOf(const Graph& graph, ValueId operand, ValueId result);

}  // namespace heddle
