#include "test/parallel/ranks.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>
#include <ATen/ops/sub.h>

#include "heddle/passes/passes.h"
#include "heddle/runtime/whole.h"

namespace heddle {

void RunPasses(Module& module, std::string_view text) {
  Result<Pipeline> pipeline = ParsePipeline(text, Passes());
  ASSERT_TRUE(pipeline.ok()) << Format(pipeline.diagnostics());
  Result<RunReport> report = RunPipeline(module, *pipeline);
  ASSERT_TRUE(report.ok()) << Format(report.diagnostics());
}

Module Parallelized(Module module, const Plan& plan, bool reduce_first) {
  RunPasses(module, PlanningPipeline(FormatPlan(plan)));
  if (testing::Test::HasFatalFailure()) return module;
  RunPasses(module, LoweringPipeline(reduce_first));
  return module;
}

std::vector<at::Tensor> OutputsOf(const Module& module, const std::vector<at::Tensor>& inputs) {
  Result<std::vector<at::Tensor>> out = RunOnWhole(module, inputs);
  EXPECT_TRUE(out.ok()) << Format(out.diagnostics());
  return out.ok() ? *out : std::vector<at::Tensor>();
}

double RelativeDifference(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || a.sizes() != b.sizes()) return INFINITY;
  if (a.numel() == 0) return 0;
  at::Tensor x = a.to(at::kDouble);
  at::Tensor y = b.to(at::kDouble);
  double most = at::max(at::abs(y)).item().toDouble();
  double difference = at::max(at::abs(at::sub(x, y))).item().toDouble();
  // NaN on either side is a difference.
  if (!(difference == difference)) return INFINITY;
  return difference / std::max(most, 1e-30);
}

}  // namespace heddle
