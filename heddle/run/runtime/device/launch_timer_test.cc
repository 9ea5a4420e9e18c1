// Tests of how times of steps become times of launches.
#include <gtest/gtest.h>

#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/runtime/device/launch_timer.h"

namespace heddle::run {
namespace {

// Nodes 0 and 1 are one kernel, whose second node also has a kernel for its other result. Node 2 is
// a view, node 3 a product.
LaunchList SomeLaunches() {
  Result<Module> module = ParseModule(R"(heddle 1 local
graph @g(%x: f32[4,4]) -> (%d) {
  %a = aten.neg(%x)
  %b = aten.neg(%a)
  %c = aten.t(%b)
  %d = aten.mm(%c, %c)
}
)",
                                      "test", Ops());
  EXPECT_TRUE(module.ok()) << Format(module.diagnostics());
  return {std::move(module->graphs[0]),
          {{"rows", "rows", {NodeId(0), NodeId(1)}, {}},
           {"norm_weight", "columns", {NodeId(1)}, {}},
           {"aten.mm", "matmul", {NodeId(3)}, {}}}};
}

using Times = std::vector<std::optional<double>>;

TEST(LaunchTimer, AssignsTimesToLaunches) {
  LaunchList list = SomeLaunches();
  std::vector<TimedStep> steps = {{NodeId(0), {5, 2}}, {NodeId(2), {0.5}}, {NodeId(3), {7}}};
  EXPECT_EQ(TimesOfLaunches(list, steps), (Times{5, 2, 7}));
}

TEST(LaunchTimer, AddsTimesOfNodesThatRunOneByOne) {
  LaunchList list = SomeLaunches();
  std::vector<TimedStep> steps = {
      {NodeId(0), {1}}, {NodeId(1), {2}}, {NodeId(2), {0.5}}, {NodeId(3), {7}}};
  EXPECT_EQ(TimesOfLaunches(list, steps), (Times{3, std::nullopt, 7}));
}

}  // namespace
}  // namespace heddle::run
