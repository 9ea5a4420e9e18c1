// GraphCopier: copies inputs, nodes and outputs of one graph into another of the same module.
//
// So a joint graph is split into @fwd and @bwd, and they are joined again. Types, symbols, placements, attributes, scopes
// and regions get their ids in the new graph; save decisions, phases and streams come along. Names stay as they are where
// they are free. The new graph is built as any is: inputs first, then nodes in their order.
//
//   GraphCopier copier(module.mesh, joint, bwd);
//   copier.AddInput(x, {.role = InputRole::kSaved, .label = "x"});      what @fwd made of it is an input here
//   for (NodeId id : backward_nodes) copier.CopyNode(id);
#pragma once

#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

class GraphCopier {
 public:
  // All outlive the copier. `from` does not change while it is copied.
  GraphCopier(const Mesh& mesh, const Graph& from, Graph& to);

  // What a value of `from` is in `to`; none if it was neither copied nor bound.
  ValueId of(ValueId value) const { return values_[value]; }
  // From here on `value` of `from` is `copy` of `to`, and not copied.
  void Bind(ValueId value, ValueId copy) { values_[value] = copy; }

  // A new input that stands for `value`, which may be a result in `from`. Its global type is that of `from`.
  ValueId AddInput(ValueId value, Input input);
  // An input with its role.
  ValueId CopyInput(const Input& input) { return AddInput(input.value, input); }
  // Its operands must be known in `to`.
  NodeId CopyNode(NodeId node);
  // Its value, and the input that it updates, must be known in `to`.
  void CopyOutput(Output output);
  // Regions of scopes that have none in `to`. Fails if one has, and they differ.
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
  // What was copied already, by what it is in `from`.
  std::vector<Dim> symbols_;
  Table<TypeId, TypeId> types_;
  Table<PlacementId, PlacementId> placements_;
  Table<AttrsId, AttrsId> attrs_;
};

}  // namespace heddle
