#include "heddle/run/runtime/shards.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include "heddle/core/ir/type.h"
#include "heddle/run/runtime/fault.h"
#include "heddle/run/runtime/reducer.h"

namespace heddle::run {
namespace {

// Returns the rank's part of the whole as a view.
at::Tensor PlaceOf(at::Tensor whole, const Placement& placement, const Mesh& mesh, int64_t rank) {
  for (size_t d = 0; d < placement.splits.size(); ++d) {
    auto dim = static_cast<int64_t>(d);
    Part part = PartAt(whole.size(dim), placement.splits[d], mesh, rank);
    whole = whole.narrow(dim, part.begin, part.size);
  }
  return whole;
}

// Axes that split a dimension, axes with a pending reduction of one kind, and the other axes.
Axes SplitAxes(const Placement& placement) {
  Axes axes;
  for (const Axes& split : placement.splits) {
    for (AxisId axis : split) axes.Add(axis);
  }
  return axes;
}

Axes PartialAxes(const Placement& placement, ReduceOp op) {
  Axes axes;
  for (const Partial& partial : placement.partials) {
    if (partial.op == op) axes.Add(partial.axis);
  }
  return axes;
}

Axes ReplicaAxes(const Placement& placement, const Mesh& mesh) {
  Axes split = SplitAxes(placement);
  Axes axes;
  for (AxisId axis = 0; axis < mesh.axes().size(); ++axis) {
    bool partial =
        std::ranges::any_of(placement.partials, [&](const Partial& p) { return p.axis == axis; });
    if (!split.contains(axis) && !partial) axes.Add(axis);
  }
  return axes;
}

Status CheckReplicas(std::span<const at::Tensor> parts, const Axes& axes, const Mesh& mesh) {
  for (const std::vector<int64_t>& group : Groups(mesh, axes)) {
    const at::Tensor& first = parts[static_cast<size_t>(group[0])];
    for (int64_t rank : group) {
      const at::Tensor& part = parts[static_cast<size_t>(rank)];
      if (SameBits(first, part)) continue;
      return Error(Diag::kReplicasDiffer, "the replicas of ranks {} and {} differ: {} and {}",
                   group[0], rank, TensorText(first), TensorText(part));
    }
  }
  return Done{};
}

}  // namespace

TypeId WholeType(const Graph& graph, ValueId value, const GlobalType& global) {
  return global.type ? global.type : graph.type(value);
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  // Makes a flat tensor, because a scalar cannot be viewed as bytes. as_strided sets stride 1,
  // which a dimension of size 1 need not have. Resolves pending conjugation and negation.
  auto bytes = [](const at::Tensor& t) {
    at::Tensor plain = t.resolve_conj().resolve_neg().contiguous();
    return plain.as_strided({plain.numel()}, {1}).view(at::kByte);
  };
  return a.numel() == 0 || bytes(a).equal(bytes(b));
}

at::Tensor ShardOf(const at::Tensor& whole, const Placement& placement, const Mesh& mesh,
                   int64_t rank) {
  at::Tensor part = PlaceOf(whole, placement, mesh, rank);
  // A copy, so that a rank's part does not keep the whole alive.
  part = placement.splits.empty() ? part.contiguous() : part.clone(at::MemoryFormat::Contiguous);
  auto is_first = [&](ReduceOp op) {
    return std::ranges::all_of(PartialAxes(placement, op),
                               [&](AxisId axis) { return mesh.Coordinate(rank, axis) == 0; });
  };
  if (!is_first(ReduceOp::kSum)) return at::zeros_like(part);
  if (!is_first(ReduceOp::kProduct)) return at::ones_like(part);
  return part;
}

Result<at::Tensor> Assemble(std::span<const at::Tensor> parts_by_rank, const Placement& placement,
                            const Mesh& mesh, at::IntArrayRef whole_sizes) {
  HEDDLE_CHECK(static_cast<int64_t>(parts_by_rank.size()) == mesh.ranks(),
               "the number of parts differs from the number of ranks");
  at::Tensor whole = at::empty(whole_sizes, parts_by_rank[0].options());
  std::vector<at::Tensor> parts(parts_by_rank.begin(), parts_by_rank.end());
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    const at::Tensor& part = parts[static_cast<size_t>(rank)];
    at::Tensor place = PlaceOf(whole, placement, mesh, rank);
    if (part.sizes() == place.sizes() && part.scalar_type() == place.scalar_type()) continue;
    return Error(Diag::kShapeMismatch, "rank {} has {}, but its part of the whole is {}", rank,
                 TensorText(part), TensorText(place));
  }
  HEDDLE_RETURN_IF_ERROR(CheckReplicas(parts, ReplicaAxes(placement, mesh), mesh));
  // Applies one kind of reduction after the other, each over all its axes in one step, in the order
  // of the mesh.
  std::vector<ReduceOp> done;
  for (const Partial& partial : placement.partials) {
    if (std::ranges::count(done, partial.op) > 0) continue;
    done.push_back(partial.op);
    for (const std::vector<int64_t>& group : Groups(mesh, PartialAxes(placement, partial.op))) {
      std::vector<at::Tensor> members;
      for (int64_t rank : group)
        members.push_back(parts[static_cast<size_t>(rank)].contiguous().view({-1}));
      at::Tensor reduced = Reducer()
                               .Reduce(members, partial.op, /*rows=*/false)
                               .view(parts[static_cast<size_t>(group[0])].sizes());
      for (int64_t rank : group) parts[static_cast<size_t>(rank)] = reduced;
    }
  }
  // All groups have the same values now.
  std::vector<int64_t> group = Groups(mesh, SplitAxes(placement))[0];
  for (int64_t rank : group)
    PlaceOf(whole, placement, mesh, rank).copy_(parts[static_cast<size_t>(rank)]);
  return whole;
}

}  // namespace heddle::run
