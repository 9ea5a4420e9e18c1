#include "test/attack/run_both.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/view_as_real.h>

#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/runtime/shards.h"
#include "heddle/run/runtime/test/run_on_whole.h"
#include "test/golden/small_inputs.h"

namespace heddle {
namespace {

constexpr int64_t kMaxRanks = 16;
constexpr int64_t kMaxElements = 1 << 20;

// Whether a graph is small and deterministic.
bool CanRun(const Module& module) {
  if (module.mesh.ranks() > kMaxRanks || (module.view == View::kGlobal && !module.mesh.empty()))
    return false;
  const Graph& graph = module.graphs[0];
  int64_t elements = 0;
  for (uint32_t v = 0; v < graph.value_count(); ++v) {
    int64_t count = 1;
    for (Dim size : graph.types().dims(graph.type(ValueId(v)))) {
      if (IsSymbol(size)) size = graph.types().symbols().Bound(size);
      if (__builtin_mul_overflow(count, size, &count)) return false;
    }
    if (__builtin_add_overflow(elements, count, &elements) || elements > kMaxElements) return false;
  }
  for (NodeId id : graph.nodes()) {
    // Uninitialized memory, or rows after the last group, which ATen leaves undefined.
    bool undefined = graph.op(id).name().find("empty") != std::string_view::npos ||
                     graph[id].op == op::_grouped_mm;
    if (graph[id].op == kOpaqueOp || graph.op(id).effect() == Effect::kRandom || undefined)
      return false;
  }
  return true;
}

// Maximum difference of results, relative to the largest of them.
double Tolerance(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
    case at::kComplexDouble: return 1e-9;
    case at::kFloat:
    case at::kComplexFloat: return 1e-3;
    case at::kHalf:
    case at::kBFloat16: return 0.1;
    default: return at::isFloatingType(type) ? 0.5 : 0;
  }
}

bool Close(const at::Tensor& a, const at::Tensor& b, bool exact) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  if (run::SameBits(a, b) || a.numel() == 0) return true;
  auto numbers = [](const at::Tensor& t) {
    return (t.is_complex() ? at::view_as_real(t.resolve_conj()) : t).to(at::kDouble);
  };
  at::Tensor x = numbers(a);
  at::Tensor y = numbers(b);
  // The kind of a NaN and the sign of a zero may differ.
  at::Tensor both_nan = x.isnan().logical_and(y.isnan());
  at::Tensor same = both_nan.logical_or(x.eq(y));
  if (exact) return same.all().item<bool>();
  double largest = x.masked_fill(x.isfinite().logical_not(), 0).abs().max().item<double>();
  at::Tensor near = x.sub(y).abs().le(Tolerance(a.scalar_type()) * (1e-6 + largest));
  return same.logical_or(near).all().item<bool>();
}

}  // namespace

std::string WhatDiffers(const std::string& before_text, const std::string& after_text, bool exact) {
  at::set_num_threads(1);
  Module before = *ParseModule(before_text, "before", Ops());
  Module after = *ParseModule(after_text, "after", Ops());
  if (before.graphs.empty() || before.graphs.size() != after.graphs.size() || !CanRun(before) ||
      !CanRun(after))
    return "";
  Result<std::vector<at::Tensor>> inputs = SmallInputs(before);
  if (!inputs.ok()) return "";
  Result<std::vector<at::Tensor>> expected = run::RunOnWhole(before, *inputs);
  if (!expected.ok()) return "";
  Result<std::vector<at::Tensor>> got = run::RunOnWhole(after, *inputs);
  if (!got.ok()) return "cannot run after the command: " + got.diagnostics()[0].message;
  for (size_t o = 0; o < expected->size(); ++o) {
    if (!Close((*expected)[o], (*got)[o], exact))
      return fmt::format("gives other numbers: {}",
                         PrintOutput(after, after.graphs[0], after.graphs[0].outputs()[o]));
  }
  return "";
}

}  // namespace heddle
