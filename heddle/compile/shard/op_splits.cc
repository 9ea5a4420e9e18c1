#include "heddle/compile/shard/op_splits.h"

#include <algorithm>
#include <set>

#include "heddle/compile/shard/axis_state.h"

namespace heddle::compile {
namespace {

// Bools cannot be summands.
bool CanBeSum(const std::vector<uint32_t>& group, std::span<const Type> operands) {
  return std::ranges::none_of(group, [&](uint32_t i) { return operands[i].dtype == DType::kBool; });
}

// `axes` with `axis` inserted at every position.
std::vector<Axes> Inserted(const Axes& axes, AxisId axis) {
  std::vector<Axes> out;
  for (size_t at = 0; at <= axes.size(); ++at) {
    Axes list;
    for (size_t i = 0; i < at; ++i) list.Add(axes[i]);
    list.Add(axis);
    for (size_t i = at; i < axes.size(); ++i) list.Add(axes[i]);
    out.push_back(list);
  }
  return out;
}

class Enumeration {
 public:
  Enumeration(const Factors& factors, std::span<const Type> operands, std::span<const Type> results,
              const Mesh& mesh)
      : factors_(factors), operands_(operands), results_(results), mesh_(mesh) {}

  Result<std::vector<OpSplit>> Run() {
    std::vector<AxisWays> ways{
        {std::vector<Axes>(factors_.factors.size()), std::vector<Axes>(factors_.linear.size())}};
    for (AxisId axis = 0; axis < mesh_.axes().size(); ++axis) {
      // An axis of one rank splits nothing.
      if (mesh_[axis].size == 1) continue;
      std::vector<AxisWays> more = ways;
      for (const AxisWays& way : ways) {
        AddWays(way, axis, more);
        if (more.size() > kMostOpSplits)
          return Error(Diag::kPlacement, "an op can be split over [{}] in more than {} ways",
                       Format(mesh_), kMostOpSplits);
      }
      ways = std::move(more);
    }
    std::vector<OpSplit> splits;
    for (const AxisWays& way : ways) {
      std::optional<OpSplit> split = SplitBy(way, factors_, operands_, results_, mesh_);
      if (split && known_.insert(KeyOf(*split)).second) splits.push_back(*std::move(split));
    }
    return splits;
  }

 private:
  // Adds the ways in which an axis does more than replicate.
  void AddWays(const AxisWays& way, AxisId axis, std::vector<AxisWays>& out) const {
    if (factors_.sums_parts) {
      AddSumOfParts(way, axis, out);
      return;
    }
    for (FactorId f = 0; f < factors_.factors.size(); ++f) {
      if (factors_.factors[f].kind == FactorKind::kWhole) continue;
      for (const Axes& axes : Inserted(way.by_factor[f], axis)) {
        out.push_back(way);
        out.back().by_factor[f] = axes;
      }
    }
    for (size_t g = 0; g < factors_.linear.size(); ++g) {
      if (!CanBeSum(factors_.linear[g], operands_)) continue;
      out.push_back(way);
      out.back().by_group[g].Add(axis);
    }
  }

  // Splits one loop of every operand: the first, or the second if there is one. Other loops would
  // give no further cases.
  void AddSumOfParts(const AxisWays& way, AxisId axis, std::vector<AxisWays>& out) const {
    for (size_t dim : {size_t{0}, size_t{1}}) {
      AxisWays next = way;
      bool all = true;
      for (const TensorFactors& dims : factors_.operands) {
        all &= !dims.empty();
        if (!dims.empty()) next.by_factor[dims[std::min(dim, dims.size() - 1)][0]].Add(axis);
      }
      if (all) out.push_back(std::move(next));
    }
  }

  std::vector<uint64_t> KeyOf(const OpSplit& split) const {
    std::vector<uint64_t> key;
    for (const auto* list : {&split.operands, &split.results}) {
      for (const Placement& placement : *list) {
        key.push_back(placement.splits.size());
        for (const Axes& axes : placement.splits) key.push_back(axes.bits());
        for (const Partial& partial : placement.partials)
          key.push_back(uint64_t{1} << 63 | uint64_t{partial.axis} << 8 |
                        static_cast<uint64_t>(partial.op));
      }
    }
    return key;
  }

  const Factors& factors_;
  std::span<const Type> operands_;
  std::span<const Type> results_;
  const Mesh& mesh_;
  std::set<std::vector<uint64_t>> known_;
};

// The placement of one tensor, or nullopt.
std::optional<Placement> SplitTensor(const TensorFactors& dims, const AxisWays& ways,
                                     const Factors& factors, const Mesh& mesh) {
  Placement placement;
  for (const DimFactors& dim : dims) {
    DimAxes found = AxesOfDim(dim, ways.by_factor, factors, mesh);
    if (found.blocked) return std::nullopt;
    placement.splits.push_back(found.axes);
  }
  return placement;
}

void AddPartials(Placement& placement, const Axes& axes, ReduceOp op) {
  for (AxisId axis : axes) placement.partials.push_back({axis, op});
}

}  // namespace

Result<std::vector<OpSplit>> SplitsOf(const Factors& factors, std::span<const Type> operands,
                                      std::span<const Type> results, const Mesh& mesh) {
  return Enumeration(factors, operands, results, mesh).Run();
}

std::optional<OpSplit> SplitBy(const AxisWays& ways, const Factors& factors,
                               std::span<const Type> operands, std::span<const Type> results,
                               const Mesh& mesh) {
  for (FactorId f = 0; f < factors.factors.size(); ++f) {
    if (ways.by_factor[f].empty()) continue;
    if (!AcceptsParts(factors.factors[f], ways.by_factor[f], mesh)) return std::nullopt;
  }
  OpSplit out;
  for (size_t i = 0; i < operands.size(); ++i) {
    std::optional<Placement> placement = SplitTensor(factors.operands[i], ways, factors, mesh);
    if (!placement) return std::nullopt;
    for (size_t g = 0; g < factors.linear.size(); ++g) {
      if (!operands[i].is_none() && std::ranges::count(factors.linear[g], i) > 0)
        AddPartials(*placement, ways.by_group[g], ReduceOp::kSum);
    }
    placement->Normalize();
    out.operands.push_back(*std::move(placement));
  }
  for (size_t r = 0; r < results.size(); ++r) {
    std::optional<Placement> placement = SplitTensor(factors.results[r], ways, factors, mesh);
    if (!placement) return std::nullopt;
    Axes summed;
    for (const Axes& axes : ways.by_group) AddPartials(*placement, axes, ReduceOp::kSum);
    for (FactorId f = 0; f < factors.factors.size() && !results[r].is_none(); ++f) {
      const Factor& factor = factors.factors[f];
      if (factor.kind != FactorKind::kReduce || DimWith(factors.results[r], f)) continue;
      // For a sum of parts, one axis splits several loops.
      for (AxisId axis : ways.by_factor[f]) {
        if (summed.Add(axis)) placement->partials.push_back({axis, factor.reduce});
      }
    }
    if (results[r].is_none()) placement = Placement();
    placement->Normalize();
    out.results.push_back(*std::move(placement));
  }
  return out;
}

bool AcceptsParts(const Factor& factor, const Axes& axes, const Mesh& mesh) {
  if (factor.may_be_empty()) return true;
  if (IsSymbol(factor.size)) return false;
  if (factor.counted && factor.size % mesh.Size(axes) != 0) return false;
  return LeavesNoneEmpty(factor.size, axes, mesh);
}

bool LeavesNoneEmpty(int64_t size, const Axes& axes, const Mesh& mesh) {
  // Along each axis all parts except the last are equal. A shorter part may divide where a longer
  // one does not.
  std::vector<int64_t> sizes{size};
  for (AxisId axis : axes) {
    std::vector<int64_t> parts;
    for (int64_t whole : sizes) {
      int64_t part = (whole + mesh[axis].size - 1) / mesh[axis].size;
      int64_t last = whole - part * (mesh[axis].size - 1);
      if (last <= 0) return false;
      parts.push_back(part);
      parts.push_back(last);
    }
    sizes = std::move(parts);
  }
  return true;
}

}  // namespace heddle::compile
