#include "test/parallel/ranks.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/full.h>
#include <ATen/ops/max.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros.h>

#include "heddle/core/ir/text/print.h"
#include "heddle/run/aten/dtype.h"
#include "heddle/run/models/test/inputs.h"
#include "heddle/run/runtime/test/run_on_whole.h"

namespace heddle {

Module Parallelized(Module module, compile::Plan plan, bool reduce_first) {
  plan.decisions.reduce_first = reduce_first;
  Result<compile::CompileReport> report = compile::Compile(module, plan, {.pipeline = ""});
  EXPECT_TRUE(report.ok()) << Format(report.diagnostics());
  return module;
}

std::vector<at::Tensor> OutputsOf(const Module& module, const std::vector<at::Tensor>& inputs) {
  Result<std::vector<at::Tensor>> out = run::RunOnWhole(module, inputs);
  EXPECT_TRUE(out.ok()) << Format(out.diagnostics());
  return out.ok() ? *out : std::vector<at::Tensor>();
}

// Differences of tensors below `least` are relative to `least`.
double RelativeDifference(const at::Tensor& a, const at::Tensor& b, double least) {
  if (!a.defined() || !b.defined() || a.sizes() != b.sizes()) return INFINITY;
  if (a.numel() == 0) return 0;
  at::Tensor x = a.to(at::kDouble);
  at::Tensor y = b.to(at::kDouble);
  double most = at::max(at::abs(y)).item().toDouble();
  double difference = at::max(at::abs(at::sub(x, y))).item().toDouble();
  // A NaN on either side is a difference.
  if (!(difference == difference)) return INFINITY;
  return difference / std::max(most, least);
}

void ExpectTheWholeGraphsOutputs(const Module& whole, const Module& local,
                                 const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> expected = OutputsOf(whole, inputs);
  std::vector<at::Tensor> got = OutputsOf(local, inputs);
  ASSERT_EQ(got.size(), expected.size());
  // Some gradients are 0 but for rounding, such as those of GPT-2's biases of keys.
  double most = 1e-30;
  for (const at::Tensor& output : expected) {
    if (output.numel() > 0)
      most = std::max(most, at::max(at::abs(output.to(at::kDouble))).item().toDouble());
  }
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_LE(RelativeDifference(got[i], expected[i], 1e-9 * most), 1e-9)
        << PrintOutput(local, local.graphs[0], local.graphs[0].outputs()[i]);
  }
}

std::vector<at::Tensor> InputsOf(const run::Model& model, const Module& whole) {
  const Graph& graph = whole.graphs[0];
  DType dtype = graph.types().dtype(graph.type(graph.inputs()[0].value));
  std::vector<at::Tensor> inputs = run::InitParams(model, 5, dtype);
  std::vector<at::Tensor> rest = run::MakeInputs(model, 5, 0);
  // The optimizer's state starts as zeros, because this is the first step.
  for (const Input& input : graph.inputs()) {
    std::span<const Dim> dims = graph.types().dims(graph.type(input.value));
    at::ScalarType type = run::ToScalarType(graph.types().dtype(graph.type(input.value)));
    if (input.role == InputRole::kOpt)
      inputs.push_back(at::zeros(std::vector<int64_t>(dims.begin(), dims.end()), type));
    if (input.role == InputRole::kHyper)
      inputs.push_back(at::full({}, input.label == "lr" ? 8e-4 : 1.0, type));
  }
  inputs.insert(inputs.end(), rest.begin(), rest.end());
  return inputs;
}

}  // namespace heddle
