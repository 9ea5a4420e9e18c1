// GraphCopier: copies inputs, nodes and outputs from one graph to another of the same module.
//
// `partition` and `join` use it. Types, symbols, placements, attributes, scopes and regions get new
// ids. Save decisions, phases and streams are copied. Names stay the same if they are free. The new
// graph is built in the usual order: inputs first, then nodes in execution order.
//
//   GraphCopier copier(module.mesh, joint, bwd);
//   copier.AddInput(x, {.role = InputRole::kSaved, .label = "x"});
//   for (NodeId id : backward_nodes) copier.CopyNode(id);
#pragma once

#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

class GraphCopier {
 public:
  // All must outlive the copier. `from` must not change while it is copied.
  GraphCopier(const Mesh& mesh, const Graph& from, Graph& to);

  // The value in `to` for a value of `from`; none if it was neither copied nor bound.
  ValueId of(ValueId value) const { return values_[value]; }
  // Maps `value` of `from` to `copy` of `to` instead of copying it.
  void Bind(ValueId value, ValueId copy) { values_[value] = copy; }

  // Adds an input for `value`, which may be a node's result in `from`. Its global type is that of
  // `from`.
  ValueId AddInput(ValueId value, Input input);
  // Copies an input with its role.
  ValueId CopyInput(const Input& input) { return AddInput(input.value, input); }
  // All operands must be known in `to`.
  NodeId CopyNode(NodeId node);
  // The value, and the input that it updates, must be known in `to`.
  void CopyOutput(Output output);
  // Copies regions of scopes without one in `to`. Fails if both graphs have one and they differ.
  Status CopyRegions();

 private:
  ValueId Known(ValueId value) const;
  Dim CopyDim(Dim dim);
  TypeId CopyType(TypeId type);
  PlacementId CopyPlacement(PlacementId placement);
  GlobalType CopyGlobal(const GlobalType& global);
  AttrsId CopyAttrs(AttrsId attrs);
  ScopeId CopyScope(ScopeId scope) { return to_.InternScope(from_.scope_name(scope)); }

  const Mesh& mesh_;
  const Graph& from_;
  Graph& to_;
  Table<ValueId, ValueId> values_;
  // Ids in `to`, indexed by the id in `from`.
  std::vector<Dim> symbols_;
  Table<TypeId, TypeId> types_;
  Table<PlacementId, PlacementId> placements_;
  Table<AttrsId, AttrsId> attrs_;
};

}  // namespace heddle
