#include "heddle/core/ir/edit/graph_copier.h"

#include <unordered_map>

namespace heddle {

GraphCopier::GraphCopier(const Mesh& mesh, const Graph& from, Graph& to)
    : mesh_(mesh),
      from_(from),
      to_(to),
      values_(from.value_count()),
      symbols_(from.types().symbols().size()),
      types_(from.types().size()),
      placements_(from.placements().size()),
      attrs_(from.attrs_table().size()) {}

ValueId GraphCopier::Known(ValueId value) const {
  ValueId copy = value ? values_[value] : ValueId();
  HEDDLE_CHECK(copy || !value, fmt::format("`%{}` is read by a copy, but was not copied to `@{}`",
                                           value ? from_.name(value) : "", to_.name()));
  return copy;
}

ValueId GraphCopier::AddInput(ValueId value, Input input) {
  input.global = CopyGlobal(input.global);
  return values_[value] = to_.AddInput(std::move(input), CopyType(from_.type(value)),
                                       from_.name(value), CopyPlacement(from_[value].placement));
}

NodeId GraphCopier::CopyNode(NodeId node) {
  std::vector<ValueId> operands;
  for (ValueId v : from_.operands(node)) operands.push_back(Known(v));
  std::vector<ResultSpec> results;
  for (ValueId v : from_.results(node)) {
    results.push_back(
        {CopyType(from_.type(v)), from_.name(v), CopyPlacement(from_[v].placement), from_[v].keep});
  }
  NodeId copy = to_.Append({.op = from_[node].op,
                            .operands = operands,
                            .attrs = CopyAttrs(from_[node].attrs),
                            .results = results,
                            .scope = CopyScope(from_[node].scope),
                            .phase = from_[node].phase,
                            .stream = from_[node].stream});
  for (size_t i = 0; i < results.size(); ++i)
    values_[from_.results(node)[i]] = to_.results(copy)[i];
  return copy;
}

void GraphCopier::CopyOutput(Output output) {
  output.value = Known(output.value);
  output.target = Known(output.target);
  output.global = CopyGlobal(output.global);
  to_.AddOutput(std::move(output));
}

Status GraphCopier::CopyRegions() {
  std::vector<Region> regions = to_.regions();
  std::unordered_map<uint32_t, Region> by_scope;
  for (const Region& region : regions) by_scope.emplace(region.scope.index(), region);
  for (Region region : from_.regions()) {
    region.scope = CopyScope(region.scope);
    auto [known, added] = by_scope.try_emplace(region.scope.index(), region);
    if (added) {
      regions.push_back(region);
    } else if (known->second.local != region.local || known->second.why != region.why) {
      return Error(Diag::kDuplicateName, "scope `{}` has a region in `@{}` and another in `@{}`",
                   to_.scope_name(region.scope), from_.name(), to_.name());
    }
  }
  to_.SetRegions(std::move(regions));
  return Done{};
}

// A symbol name has one bound per graph. If the target has this name with another bound, the copy
// gets a new name.
Dim GraphCopier::CopyDim(Dim dim) {
  if (!IsSymbol(dim)) return dim;
  Dim& copy = symbols_[static_cast<size_t>(dim - kFirstSymbol)];
  if (copy != 0) return copy;
  SymbolTable& symbols = to_.types().symbols();
  const Symbol& symbol = from_.types().symbols()[dim];
  const Symbol* known = symbol.is_chunk() ? nullptr : symbols.Find(symbol.name);
  if (known == nullptr || known->bound == symbol.bound)
    return copy = symbols.Import(dim, from_.types().symbols());
  auto taken = [&](const std::string& name) {
    return symbols.Find(name) || from_.types().symbols().Find(name) || mesh_.Find(name);
  };
  std::string name;
  for (int n = 1; name.empty() || taken(name); ++n) name = fmt::format("{}_{}", symbol.name, n);
  return copy = symbols.Named(name, symbol.bound);
}

TypeId GraphCopier::CopyType(TypeId type) {
  if (!type) return type;
  TypeId& copy = types_[type];
  if (copy) return copy;
  const TypeTable& types = from_.types();
  if (types.is_async(type)) {
    std::vector<TypeId> elements;
    for (TypeId element : types.elements(type)) elements.push_back(CopyType(element));
    return copy = to_.types().Async(elements);
  }
  Dims dims;
  for (Dim dim : types.dims(type)) dims.push_back(CopyDim(dim));
  return copy = to_.types().Tensor(types.dtype(type), dims, types.space(type));
}

PlacementId GraphCopier::CopyPlacement(PlacementId placement) {
  PlacementId& copy = placements_[placement];
  if (!copy) copy = to_.placements().Intern(from_.placements()[placement]);
  return copy;
}

GlobalType GraphCopier::CopyGlobal(const GlobalType& global) {
  return {CopyType(global.type), CopyPlacement(global.placement)};
}

AttrsId GraphCopier::CopyAttrs(AttrsId id) {
  AttrsId& copy = attrs_[id];
  if (copy) return copy;
  Attrs attrs = from_.attrs_table()[id];
  for (Attr& attr : attrs.list) {
    if (auto* one = std::get_if<int64_t>(&attr.value)) *one = CopyDim(*one);
    if (auto* list = std::get_if<std::vector<int64_t>>(&attr.value)) {
      for (int64_t& item : *list) item = CopyDim(item);
    }
  }
  return copy = to_.InternAttrs(attrs);
}

}  // namespace heddle
