#include "test/parallel/op_split.h"

#include <algorithm>
#include <set>

namespace heddle {
namespace {

bool CanSplit(const Factor& factor) { return factor.kind != FactorKind::kWhole; }

// Booleans cannot be pending sums.
bool CanBeSum(const OpCall& call, const std::vector<uint32_t>& group) {
  return std::ranges::all_of(group, [&](uint32_t i) {
    return call.operands[i].is_none() || call.operands[i].dtype != DType::kBool;
  });
}

bool HasFactor(const TensorFactors& dims, FactorId f) {
  return std::ranges::any_of(dims,
                             [&](const DimFactors& d) { return std::ranges::count(d, f) > 0; });
}

// Returns the positions of a dimension on a rank: those whose every factor is in the rank's part.
std::set<int64_t> PositionsAt(const DimFactors& dim, const OpCall& call, const CallSplit& split,
                              const Mesh& mesh, int64_t rank) {
  std::set<int64_t> positions{0};
  for (FactorId f : dim) {
    int64_t size = call.factors.factors[f].size;
    Part part = PartAt(size, split.by_factor[f], mesh, rank);
    std::set<int64_t> finer;
    for (int64_t at : positions) {
      for (int64_t k = 0; k < part.size; ++k) finer.insert(at * size + part.begin + k);
    }
    positions = std::move(finer);
  }
  return positions;
}

// Returns the axes of a dimension, if splitting it over them gives every rank the correct
// positions.
std::optional<Axes> AxesOf(const DimFactors& dim, int64_t size, const OpCall& call,
                           const CallSplit& split, const Mesh& mesh) {
  Axes axes;
  for (FactorId f : dim) {
    for (AxisId axis : split.by_factor[f]) axes.Add(axis);
    // Uneven parts of a merged dimension match only by chance, and the code under test never uses
    // them.
    bool even = call.factors.factors[f].size % mesh.Size(split.by_factor[f]) == 0;
    if (dim.size() > 1 && !even) return std::nullopt;
  }
  for (int64_t rank = 0; rank < mesh.ranks() && dim.size() > 1; ++rank) {
    Part part = PartAt(size, axes, mesh, rank);
    std::set<int64_t> wanted = PositionsAt(dim, call, split, mesh, rank);
    std::set<int64_t> given;
    for (int64_t k = 0; k < part.size; ++k) given.insert(part.begin + k);
    if (given != wanted) return std::nullopt;
  }
  return axes;
}

std::optional<Placement> SplitPlacement(const TensorFactors& dims, const Type& type,
                                        const OpCall& call, const CallSplit& split,
                                        const Mesh& mesh) {
  Placement placement;
  for (size_t d = 0; d < dims.size(); ++d) {
    std::optional<Axes> axes = AxesOf(dims[d], type.dims[d], call, split, mesh);
    if (!axes) return std::nullopt;
    placement.splits.push_back(*axes);
  }
  return placement;
}

void AddSums(Placement& placement, const Axes& axes, ReduceOp op = ReduceOp::kSum) {
  for (AxisId axis : axes) placement.partials.push_back({axis, op});
}

}  // namespace

bool CallSplit::has_sums() const {
  return std::ranges::any_of(by_group, [](const Axes& axes) { return !axes.empty(); });
}

namespace {

// Returns splits of one loop of every operand, over each axis and each pair of axes.
std::vector<CallSplit> SumsOfParts(const OpCall& call, const Mesh& mesh) {
  std::vector<CallSplit> splits;
  size_t axes = mesh.axes().size();
  for (size_t dim : {size_t{0}, size_t{1}}) {
    for (AxisId a = 0; a < axes; ++a) {
      for (AxisId b = a; b < axes; ++b) {
        CallSplit split{std::vector<Axes>(call.factors.factors.size()), {}};
        for (const TensorFactors& dims : call.factors.operands) {
          FactorId f = dims[std::min(dim, dims.size() - 1)][0];
          split.by_factor[f].Add(a);
          split.by_factor[f].Add(b);
        }
        splits.push_back(std::move(split));
      }
    }
  }
  return splits;
}

}  // namespace

std::vector<CallSplit> CallSplits(const OpCall& call, const Mesh& mesh) {
  const Factors& factors = call.factors;
  if (factors.sums_parts) return SumsOfParts(call, mesh);
  // Loops, then groups.
  std::vector<size_t> ways;
  for (size_t f = 0; f < factors.factors.size(); ++f) {
    if (CanSplit(factors.factors[f])) ways.push_back(f);
  }
  for (size_t g = 0; g < factors.linear.size(); ++g) {
    if (CanBeSum(call, factors.linear[g])) ways.push_back(factors.factors.size() + g);
  }
  CallSplit none{std::vector<Axes>(factors.factors.size()),
                 std::vector<Axes>(factors.linear.size())};
  auto axes_of = [&](CallSplit& split, size_t way) -> Axes& {
    return way < factors.factors.size() ? split.by_factor[way]
                                        : split.by_group[way - factors.factors.size()];
  };
  std::vector<CallSplit> splits;
  size_t axes = mesh.axes().size();
  for (size_t w = 0; w < ways.size(); ++w) {
    for (AxisId a = 0; a < axes; ++a) {
      CallSplit one = none;
      axes_of(one, ways[w]).Add(a);
      splits.push_back(one);
      for (AxisId b = 0; b < axes; ++b) {
        if (a == b) continue;
        // The order of axes has no effect on a group.
        bool is_group = ways[w] >= factors.factors.size();
        CallSplit two = one;
        axes_of(two, ways[w]).Add(b);
        if (!is_group || a < b) splits.push_back(two);
        for (size_t v = w + 1; v < ways.size(); ++v) {
          CallSplit mixed = one;
          axes_of(mixed, ways[v]).Add(b);
          splits.push_back(mixed);
        }
      }
    }
  }
  return splits;
}

std::optional<compile::OpSplit> PlacementsOf(const OpCall& call, const CallSplit& split,
                                             const Mesh& mesh) {
  const Factors& factors = call.factors;
  for (size_t f = 0; f < factors.factors.size(); ++f) {
    if (split.by_factor[f].empty() || factors.factors[f].may_be_empty()) continue;
    bool even = factors.factors[f].size % mesh.Size(split.by_factor[f]) == 0;
    if (factors.factors[f].counted && !even) return std::nullopt;
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      if (PartAt(factors.factors[f].size, split.by_factor[f], mesh, rank).size == 0)
        return std::nullopt;
    }
  }
  compile::OpSplit out;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    auto placement = SplitPlacement(factors.operands[i], call.operands[i], call, split, mesh);
    if (!placement) return std::nullopt;
    for (size_t g = 0; g < factors.linear.size(); ++g) {
      bool member = std::ranges::count(factors.linear[g], i) > 0 && !call.operands[i].is_none();
      if (member) AddSums(*placement, split.by_group[g]);
    }
    placement->Normalize();
    out.operands.push_back(*std::move(placement));
  }
  for (size_t r = 0; r < call.results.size(); ++r) {
    auto placement = SplitPlacement(factors.results[r], call.results[r], call, split, mesh);
    if (!placement) return std::nullopt;
    if (!call.results[r].is_none()) {
      for (const Axes& axes : split.by_group) AddSums(*placement, axes);
      for (FactorId f = 0; f < factors.factors.size(); ++f) {
        const Factor& factor = factors.factors[f];
        if (factor.kind == FactorKind::kReduce && !HasFactor(factors.results[r], f))
          AddSums(*placement, split.by_factor[f], factor.reduce);
        // All loops together form one sum.
        bool some = !split.by_factor[f].empty();
        if (factors.sums_parts && some) break;
      }
    }
    placement->Normalize();
    out.results.push_back(*std::move(placement));
  }
  return out;
}

SplitTraits TraitsOf(const OpCall& call, const CallSplit& split, const Mesh& mesh) {
  SplitTraits traits;
  traits.kept = !split.has_sums();
  for (FactorId f = 0; f < split.by_factor.size(); ++f) {
    if (split.by_factor[f].empty()) continue;
    const Factor& factor = call.factors.factors[f];
    traits.uneven |= factor.size % mesh.Size(split.by_factor[f]) != 0;
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
      traits.empty |= PartAt(factor.size, split.by_factor[f], mesh, rank).size == 0;
    traits.kept &= factor.kind == FactorKind::kKeep;
    traits.suggested &= std::ranges::any_of(
        call.factors.operands, [&](const TensorFactors& dims) { return HasFactor(dims, f); });
  }
  return traits;
}

std::string Describe(const OpCall& call, const CallSplit& split, const Mesh& mesh) {
  std::string out = fmt::format("{} on [{}]", Describe(call), Format(mesh));
  for (size_t f = 0; f < split.by_factor.size(); ++f) {
    if (!split.by_factor[f].empty())
      out += fmt::format(", {} over [{}]", call.factors.factors[f].name,
                         Format(mesh, split.by_factor[f]));
  }
  for (size_t g = 0; g < split.by_group.size(); ++g) {
    if (!split.by_group[g].empty())
      out += fmt::format(", group {} sums over [{}]", g, Format(mesh, split.by_group[g]));
  }
  return out;
}

}  // namespace heddle
