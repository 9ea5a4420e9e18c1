// Facts about single nodes that several finders of kernels need.
#pragma once

#include <string_view>
#include <variant>

#include "heddle/core/ir/graph.h"
#include "heddle/core/ops/ops.h"

namespace heddle {

// Returns an attribute, or `otherwise` if it is absent or of another type.
template <typename T>
T AttrOf(const Graph& graph, NodeId node, std::string_view name, T otherwise) {
  const AttrValue* value = graph.attrs(node).Find(name);
  const T* found = value == nullptr ? nullptr : std::get_if<T>(value);
  return found == nullptr ? otherwise : *found;
}

inline bool IsPlainCast(const Graph& graph, NodeId node, DType from, DType to) {
  return graph[node].op == op::_to_copy &&
         graph.types().dtype(graph.type(graph.operands(node)[0])) == from &&
         graph.types().dtype(graph.type(graph[node].first_result)) == to;
}

}  // namespace heddle
