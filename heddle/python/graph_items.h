// Views of the nodes, inputs, results and outputs of a graph.
#pragma once

#include "heddle/python/graph.h"

namespace heddle::python {

using Shared = std::shared_ptr<const SharedModule>;

struct NodeView {
  Shared shared;
  NodeId id;

  const heddle::Graph& graph() const { return shared->graph(); }
  const heddle::Node& node() const { return graph()[id]; }
  bool operator==(const NodeView&) const = default;
};

struct ValueView {
  Shared shared;
  ValueId id;

  const heddle::Graph& graph() const { return shared->graph(); }
  // Null for a result.
  const Input* input() const {
    return graph()[id].producer ? nullptr : &graph().inputs()[id.index()];
  }
  bool operator==(const ValueView&) const = default;
};

struct OutputView {
  Shared shared;
  size_t position;

  const Output& output() const { return shared->graph().outputs()[position]; }
};

// A sequence of views that are made when they are asked for.
template <typename View>
struct Sequence {
  Shared shared;
  size_t count;

  static View At(const Shared& shared, size_t i);
};
template <>
NodeView Sequence<NodeView>::At(const Shared& shared, size_t i);
template <>
ValueView Sequence<ValueView>::At(const Shared& shared, size_t i);
template <>
OutputView Sequence<OutputView>::At(const Shared& shared, size_t i);

// Binds the views and their sequences.
void BindGraphItems(nanobind::module_& module);

}  // namespace heddle::python
