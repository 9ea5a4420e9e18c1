#include "heddle/compile/passes/chunks/cut.h"

#include <algorithm>

#include "heddle/core/analysis/weights.h"
#include "heddle/core/ops/collectives.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

struct FactorCut {
  FactorId factor;
  int64_t blocks;
};

// The loop that a cut of a dimension divides. Blocks are whole iterations of an outer loop.
std::optional<FactorCut> FactorAt(const Factors& factors, const DimFactors& dim, int64_t blocks) {
  for (FactorId f : dim) {
    int64_t size = factors.factors[f].size;
    if (IsSymbol(size) || size <= 0) return std::nullopt;
    if (blocks < size)
      return size % blocks == 0 ? std::optional(FactorCut{f, blocks}) : std::nullopt;
    if (blocks % size != 0) return std::nullopt;
    blocks /= size;
  }
  return std::nullopt;
}

// The cut of a tensor if this loop is divided. Returns false if the tensor has the loop twice.
bool CutOf(const Factors& factors, const TensorFactors& tensor, const FactorCut& of,
           std::optional<Cut>& out) {
  for (uint32_t d = 0; d < tensor.size(); ++d) {
    int64_t outer = 1;
    for (FactorId f : tensor[d]) {
      if (f == of.factor) {
        if (out) return false;
        out = Cut{d, outer * of.blocks};
      }
      outer *= factors.factors[f].size;
    }
  }
  return true;
}

}  // namespace

bool IsCutStart(const Graph& graph, NodeId node) {
  // Other ops, such as copies to the host, may have no purpose.
  std::optional<CollectiveKind> kind = CollectiveKindOf(graph[node].op);
  return kind && *kind != CollectiveKind::kAllToAll && WhyOf(graph, node) == Why::kTensor;
}

std::optional<NodeCut> CutRules::FromOperand(NodeId node, size_t operand, const Cut& cut) {
  return From(node, {false, operand, cut});
}
std::optional<NodeCut> CutRules::FromResult(NodeId node, size_t result, const Cut& cut) {
  return From(node, {true, result, cut});
}

NodeCut CutRules::Empty(NodeId node) const {
  NodeCut cut;
  cut.operands.resize(graph_.operands(node).size());
  cut.results.resize(graph_[node].result_count);
  return cut;
}

Type CutRules::TypeOf(ValueId v) const {
  const Type& type = graph_.types()[graph_.type(v)];
  return type.async && type.elements.size() == 1 ? type.elements[0] : type;
}

int64_t CutRules::DimAttr(NodeId node) const {
  const AttrValue* dim = graph_.attrs(node).Find("dim");
  int64_t at = dim != nullptr ? EachInt(*dim, 0) : 0;
  return at < 0 ? at + static_cast<int64_t>(TypeOf(graph_.operands(node)[0]).rank()) : at;
}

bool CutRules::Divides(const Type& type, const Cut& cut) const {
  if (cut.kind == Cut::Kind::kSum) return true;
  // A piece has its own number of rows.
  if (cut.kind == Cut::Kind::kOwn && IsSymbol(type.dims[cut.dim])) return true;
  if (type.async || cut.dim >= type.rank() || IsSymbol(type.dims[cut.dim])) return false;
  int64_t size = type.dims[cut.dim];
  return size > 0 && size % cut.blocks == 0 && size / cut.blocks % chunks_ == 0;
}

std::optional<NodeCut> CutRules::From(NodeId node, const Seed& seed) {
  Effect effect = graph_.op(node).effect();
  bool computes = effect == Effect::kPure || effect == Effect::kView;
  if (!computes && effect != Effect::kComm) return std::nullopt;
  std::optional<NodeCut> cut;
  auto dim = static_cast<int64_t>(seed.cut.dim);
  OpId op = graph_[node].op;
  if (effect == Effect::kComm) {
    cut = OfCollective(node, seed);
  } else if (op == op::split_Tensor && DimAttr(node) == dim) {
    cut = OfParts(seed, !seed.is_result, graph_[node].result_count, Empty(node));
  } else if (op == op::cat && DimAttr(node) == dim) {
    cut = OfParts(seed, seed.is_result, static_cast<int64_t>(graph_.operands(node).size()),
                  Empty(node));
  } else {
    cut = OfFactors(node, seed);
  }
  if (!cut || !Holds(node, *cut)) return std::nullopt;
  return cut;
}

std::optional<NodeCut> CutRules::OfParts(const Seed& seed, bool seed_is_whole, int64_t parts,
                                         const NodeCut& shape) {
  Cut whole = seed.cut;
  Cut part = seed.cut;
  if (seed_is_whole) {
    if (whole.blocks % parts != 0) return std::nullopt;
    part.blocks /= parts;
  } else {
    whole.blocks *= parts;
  }
  NodeCut cut = shape;
  bool result_is_whole = seed.is_result == seed_is_whole;
  std::ranges::fill(cut.operands, result_is_whole ? part : whole);
  std::ranges::fill(cut.results, result_is_whole ? whole : part);
  return cut;
}

std::optional<NodeCut> CutRules::OfCollective(NodeId node, const Seed& seed) const {
  OpId op = graph_[node].op;
  if (graph_.operands(node).size() != 1 || graph_[node].result_count != 1) return std::nullopt;
  NodeCut same = Empty(node);
  same.operands[0] = same.results[0] = seed.cut;
  if (op == op::comm_wait) {
    NodeId start = graph_[graph_.operands(node)[0]].producer;
    return start && IsCutStart(graph_, start) ? std::optional(same) : std::nullopt;
  }
  if (!IsCutStart(graph_, node)) return std::nullopt;
  bool gather = op == op::comm_all_gather;
  if (op == op::comm_all_reduce || DimAttr(node) != static_cast<int64_t>(seed.cut.dim)) return same;
  int64_t ranks = mesh_.Size(std::get<Axes>(*graph_.attrs(node).Find("over")));
  return OfParts(seed, seed.is_result == gather, ranks, Empty(node));
}

const Factors* CutRules::FactorsOf(NodeId node) {
  std::vector<uint32_t> key{graph_[node].op.index(), graph_[node].attrs.index()};
  for (ValueId v : graph_.operands(node)) key.push_back(v ? graph_.type(v).index() : UINT32_MAX);
  for (ValueId v : graph_.results(node)) key.push_back(graph_.type(v).index());
  auto [at, added] = factors_.try_emplace(std::move(key));
  if (added) {
    Types results;
    for (ValueId v : graph_.results(node)) results.push_back(graph_.types()[graph_.type(v)]);
    OpArgs args(graph_.op(node), graph_.attrs(node), mesh_, symbols_,
                OperandTypes(graph_, graph_.operands(node)));
    Result<Factors> factors = InferFactors(args, results);
    if (factors.ok()) at->second = std::move(*factors);
  }
  return at->second ? &*at->second : nullptr;
}

std::optional<NodeCut> CutRules::OfFactors(NodeId node, const Seed& seed) {
  const Factors* factors = FactorsOf(node);
  if (factors == nullptr || factors->sums_parts) return std::nullopt;
  const TensorFactors& tensor =
      seed.is_result ? factors->results[seed.index] : factors->operands[seed.index];
  if (seed.cut.dim >= tensor.size()) return std::nullopt;
  std::optional<FactorCut> of = FactorAt(*factors, tensor[seed.cut.dim], seed.cut.blocks);
  if (!of) return std::nullopt;
  const Factor& factor = factors->factors[of->factor];
  if (factor.kind != FactorKind::kKeep || factor.masked || factor.counted) return std::nullopt;
  NodeCut cut = Empty(node);
  for (size_t i = 0; i < cut.operands.size(); ++i) {
    if (!CutOf(*factors, factors->operands[i], *of, cut.operands[i])) return std::nullopt;
  }
  for (size_t i = 0; i < cut.results.size(); ++i) {
    if (!CutOf(*factors, factors->results[i], *of, cut.results[i])) return std::nullopt;
  }
  return cut;
}

Type CutRules::ChunkType(const Type& type, const std::optional<Cut>& cut) const {
  Type chunk = type;
  if (!cut || cut->kind == Cut::Kind::kSum) return chunk;
  if (type.async) {
    for (Type& element : chunk.elements) element = ChunkType(element, cut);
  } else if (!IsSymbol(chunk.dims[cut->dim])) {
    chunk.dims[cut->dim] /= chunks_;
  }
  return chunk;
}

Attrs CutRules::ChunkAttrs(NodeId node, const NodeCut& cut) const {
  Attrs attrs = graph_.attrs(node);
  const OpDef& def = *graph_.op(node).def;
  const bool divided =
      !cut.results.empty() && cut.results[0] && cut.results[0]->kind != Cut::Kind::kSum;
  if (!def.shape_attr.empty() && divided) {
    Type type = ChunkType(TypeOf(graph_[node].first_result), cut.results[0]);
    attrs.Set(def.shape_attr, std::vector<int64_t>(type.dims.begin(), type.dims.end()));
  }
  bool splits = graph_[node].op == op::split_Tensor && cut.operands[0] &&
                DimAttr(node) == static_cast<int64_t>(cut.operands[0]->dim);
  if (splits) attrs.Set("split_size", std::get<int64_t>(*attrs.Find("split_size")) / chunks_);
  return attrs;
}

bool CutRules::Holds(NodeId node, const NodeCut& cut) {
  std::vector<Type> operands;
  for (size_t i = 0; i < cut.operands.size(); ++i) {
    ValueId v = graph_.operands(node)[i];
    if (cut.operands[i] && !Divides(TypeOf(v), *cut.operands[i])) return false;
    operands.push_back(v ? ChunkType(graph_.types()[graph_.type(v)], cut.operands[i]) : Type());
  }
  Types expected;
  for (size_t i = 0; i < cut.results.size(); ++i) {
    ValueId v = graph_.results(node)[i];
    if (cut.results[i] && !Divides(TypeOf(v), *cut.results[i])) return false;
    expected.push_back(ChunkType(graph_.types()[graph_.type(v)], cut.results[i]));
  }
  Attrs attrs = ChunkAttrs(node, cut);
  OpArgs args(graph_.op(node), attrs, mesh_, symbols_, std::move(operands));
  Result<Types> types = InferTypes(args);
  return types.ok() && *types == expected;
}

}  // namespace heddle::compile
