#include "test/checks/random_plan.h"

#include <fmt/core.h>

namespace heddle {
namespace {

// Each axis splits one of the dimensions of a tensor, or none.
Placement AnyPlacement(Dice& dice, const Mesh& mesh, size_t rank) {
  Placement placement;
  placement.splits.resize(rank);
  for (AxisId axis = 0; axis < mesh.axes().size(); ++axis) {
    size_t dim = dice.Pick(rank + 1);
    if (dim < rank) placement.splits[dim].Add(axis);
  }
  placement.Normalize();
  return placement;
}

// Returns the placement without most of its axes.
Placement Gathered(Dice& dice, Placement placement) {
  for (Axes& axes : placement.splits) {
    Axes kept;
    for (AxisId axis : axes) {
      if (dice.OneIn(3)) kept.Add(axis);
    }
    axes = kept;
  }
  placement.Normalize();
  return placement;
}

}  // namespace

compile::Plan RandomPlan(Dice& dice, size_t params, bool has_layers) {
  static const std::vector<std::vector<MeshAxis>> kMeshes = {{{"dp", 2}},
                                                             {{"dp", 4}},
                                                             {{"dp", 2}, {"tp", 2}},
                                                             {{"dp", 3}, {"tp", 2}},
                                                             {{"rep", 2}, {"dp", 2}, {"tp", 2}}};
  compile::Plan plan;
  plan.mesh = Mesh(dice.Of(kMeshes));
  for (const char* name : {"x0", "x1", "ids"}) {
    size_t rank = name[0] == 'x' ? 2 : 1;
    // Usually, data parallelism splits rows.
    Placement rows{{Axes(0)}, {}};
    rows.splits.resize(rank);
    bool any = dice.OneIn(4);
    plan.inputs.push_back({name, any ? AnyPlacement(dice, plan.mesh, rank) : rows, rank, 0});
  }
  for (size_t i = 0; i < params; ++i) {
    Placement store = AnyPlacement(dice, plan.mesh, 2);
    plan.params.push_back({.pattern = fmt::format("layers.*.w{}", i),
                           .store = store,
                           .compute = Gathered(dice, store),
                           .store_rank = 2,
                           .compute_rank = 2});
  }
  if (has_layers && dice.OneIn(3)) {
    compile::PlanModule layer{.pattern = "layers.0"};
    if (dice.OneIn(2)) layer.in = compile::BoundaryPlacement{AnyPlacement(dice, plan.mesh, 2), 2};
    layer.out = compile::BoundaryPlacement{AnyPlacement(dice, plan.mesh, 2), 2};
    layer.decomposes_log_softmax = dice.OneIn(2);
    plan.modules.push_back(layer);
  }
  plan.wide_tensor_grads = dice.OneIn(2);
  // An average over three ranks is not exact.
  if (dice.OneIn(4)) plan.average = plan.mesh[0].size != 3;
  if (!plan.average && dice.OneIn(4)) plan.grad_divisor = 4.0;
  return plan;
}

}  // namespace heddle
