// Calls that cannot be recorded exactly are errors, which name the op and the scope.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sum.h>

#include "heddle/core/ir/text/print.h"
#include "heddle/run/capture/capture.h"
#include "heddle/run/capture/scope.h"

namespace heddle {
namespace {

using Tensors = std::span<const at::Tensor>;

const run::ParamSpec kParams[] = {{"w", {4, 4}, "u"}, {"v", {4, 4}, "u"}};
const run::StepInput kInputs[] = {{"x", InputRole::kBatch, DType::kF32, {4, 4}}};

Result<Module> CaptureStep(const run::StepFunction& step) {
  return run::Capture(step, kParams, kInputs);
}

Diagnostic Refusal(const run::StepFunction& step) {
  Result<Module> module = CaptureStep(step);
  EXPECT_FALSE(module.ok());
  if (module.ok()) return {};
  return module.diagnostics()[0];
}

TEST(Refusals, WritingToAParameter) {
  Diagnostic d = Refusal([](Tensors p, Tensors x) {
    run::ScopeGuard scope("layers.0");
    // Detached, so that autograd does not reject the write first.
    p[0].detach().mul_(2);
    return at::mm(x[0], p[0]).sum() + p[1].sum();
  });
  EXPECT_EQ(d.kind, Diag::kCaptureInPlace);
  EXPECT_EQ(d.message, "aten.mul_.Scalar writes to input `%w`; in fwd of layers.0");
}

TEST(Refusals, ReadingThroughAStaleView) {
  Diagnostic d = Refusal([](Tensors p, Tensors x) {
    at::Tensor y = at::mm(x[0], x[0]);
    at::Tensor row = y.select(0, 1);
    row.mul_(2);
    return at::mm(y, p[0]).sum() + p[1].sum();
  });
  EXPECT_EQ(d.kind, Diag::kCaptureAlias);
  EXPECT_EQ(d.message,
            "aten.mm reads `%mm` after another view wrote to its storage; in fwd of "
            "the root");
}

TEST(Refusals, SizesThatDependOnData) {
  Diagnostic d = Refusal(
      [](Tensors p, Tensors x) { return at::nonzero(x[0]).sum() + p[0].sum() + p[1].sum(); });
  EXPECT_EQ(d.kind, Diag::kCaptureOp);
  EXPECT_TRUE(d.message.starts_with("aten.nonzero has neither a shape rule here nor a kernel"))
      << d.message;
}

TEST(Refusals, ReadingANumber) {
  Diagnostic d = Refusal([](Tensors p, Tensors x) {
    double scale = x[0].sum().item<double>();
    return (p[0] * scale).sum() + p[1].sum();
  });
  EXPECT_EQ(d.kind, Diag::kCaptureOp);
  EXPECT_TRUE(d.message.find("_local_scalar_dense") != std::string::npos) << d.message;
}

TEST(Refusals, TensorsFromOutside) {
  Diagnostic d = Refusal([](Tensors p, Tensors x) {
    return at::mm(x[0], p[0] + at::ones({4, 4})).sum() + p[1].sum();
  });
  EXPECT_EQ(d.kind, Diag::kCaptureConstant);
  EXPECT_EQ(d.message,
            "aten.add.Tensor reads a tensor of 16 elements that is neither an input nor computed "
            "from one; in fwd of the root");
}

TEST(Refusals, AParameterWithoutAGradient) {
  Diagnostic d = Refusal([](Tensors p, Tensors x) { return at::mm(x[0], p[0]).sum(); });
  EXPECT_EQ(d.kind, Diag::kCaptureNoGrad);
  EXPECT_EQ(d.message, "parameter `v` has no gradient; the loss does not depend on it");
}

TEST(Refusals, ALossThatIsNone) {
  EXPECT_EQ(Refusal([](Tensors p, Tensors x) { return at::mm(x[0], p[0]); }).kind,
            Diag::kCaptureLoss);
  EXPECT_EQ(Refusal([](Tensors, Tensors x) { return x[0].sum(); }).kind, Diag::kCaptureLoss);
  EXPECT_EQ(Refusal([](Tensors, Tensors) { return at::Tensor(); }).kind, Diag::kCaptureLoss);
}

TEST(Refusals, ShapesThatDoNotFit) {
  Diagnostic d =
      Refusal([](Tensors p, Tensors x) { return at::mm(x[0].slice(1, 0, 3), p[0]).sum(); });
  EXPECT_EQ(d.kind, Diag::kCaptureOp);
  EXPECT_TRUE(d.message.starts_with("aten.mm: mat1 and mat2 shapes cannot be multiplied"))
      << d.message;
}

TEST(Refusals, WhatAModelThrowsComesOut) {
  Diagnostic d = Refusal([](Tensors, Tensors) -> at::Tensor {
    throw std::runtime_error("the model says no\nat line 3");
  });
  EXPECT_EQ(d.message, "the model says no at line 3");
}

TEST(InPlace, WritesToFreshValuesBecomeFunctional) {
  Result<Module> module = CaptureStep([](Tensors p, Tensors x) {
    at::Tensor y = at::mm(x[0], p[0]);
    y.add_(1.5);
    y.zero_();
    y.add_(p[1]).relu_();
    return y.sum() + at::relu(p[0]).sum();
  });
  ASSERT_TRUE(module.ok()) << Format(module.diagnostics());
  std::string text = Print(*module);
  EXPECT_EQ(text.find("_("), std::string::npos) << text;
  EXPECT_NE(text.find("aten.add.Scalar(%mm, other=1.5)"), std::string::npos) << text;
}

TEST(InPlace, TypesOfWrittenValuesStay) {
  Result<Module> module = CaptureStep([](Tensors p, Tensors x) {
    at::Tensor y = at::mm(x[0], p[0]).to(at::kBFloat16);
    y.mul_(p[1].to(at::kFloat));
    return y.sum().to(at::kFloat);
  });
  ASSERT_TRUE(module.ok()) << Format(module.diagnostics());
  EXPECT_EQ(
      module->graphs[0].types().dtype(module->graphs[0].type(module->graphs[0].FindValue("mul"))),
      DType::kF32);
}

TEST(Capture, TiedWeightsAreOneParameterUsedTwice) {
  Result<Module> module =
      run::Capture([](Tensors p, Tensors x) { return at::mm(at::mm(x[0], p[0]), p[0].t()).sum(); },
                   std::span(kParams).first(1), kInputs);
  ASSERT_TRUE(module.ok());
  const Graph& graph = module->graphs[0];
  ASSERT_EQ(graph.outputs().size(), 2u);
  // Two gradients, added.
  EXPECT_EQ(graph.op(graph[graph.outputs()[1].value].producer).name(), "aten.add.Tensor");
}

TEST(Capture, FrozenParametersHaveNoGradient) {
  run::ParamSpec params[] = {{"w", {4, 4}, "u"}, {"v", {4, 4}, "u", false}};
  Result<Module> module = run::Capture(
      [](Tensors p, Tensors x) { return at::mm(at::mm(x[0], p[0]), p[1]).sum(); }, params, kInputs);
  ASSERT_TRUE(module.ok());
  EXPECT_EQ(module->graphs[0].outputs().size(), 2u);
}

}  // namespace
}  // namespace heddle
