#include "test/checks/run_module.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sub.h>

#include "heddle/run/aten/dtype.h"
#include "heddle/run/runtime/rank_program.h"
#include "heddle/run/runtime/shards.h"
#include "heddle/run/runtime/test/run_on_whole.h"
#include "test/golden/unplaced.h"

namespace heddle {
namespace {

// Seeds only the CPU's generator: seeding a GPU fails in a forked process.
void SeedCpu(uint32_t seed) {
  at::Generator cpu = at::detail::getDefaultCPUGenerator();
  cpu.set_current_seed(seed);
}

// Makes a new tensor for each run, because an update may write to its operands.
at::Tensor MakeInput(const Graph& graph, const Input& input, TypeId type, bool whole_numbers) {
  std::span<const Dim> dims = graph.types().dims(type);
  at::IntArrayRef sizes(dims.data(), dims.size());
  DType dtype = graph.types().dtype(type);
  at::ScalarType scalar = run::ToScalarType(dtype);
  if (!IsFloat(dtype)) return at::randint(0, 3, sizes, scalar);
  if (input.role == InputRole::kOpt && dims.empty()) return at::ones(sizes, scalar);
  at::Tensor numbers =
      whole_numbers ? at::randint(-2, 3, sizes, at::kDouble) : at::randn(sizes, at::kDouble);
  // A mean of squares is positive.
  if (input.role == InputRole::kOpt) numbers = at::abs(numbers).add_(1);
  return numbers.to(scalar);
}

bool IsNear(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  if (a.numel() == 0) return true;
  at::Tensor x = a.to(at::kDouble);
  at::Tensor y = b.to(at::kDouble);
  double most = std::max(at::max(at::abs(y)).item().toDouble(), 1.0);
  // False if either has a NaN.
  return at::max(at::abs(at::sub(x, y))).item().toDouble() <= 1e-9 * most;
}

}  // namespace

Result<std::vector<std::vector<at::Tensor>>> RunOnRanks(const Module& local, uint32_t seed) {
  const Graph& graph = local.graphs[0];
  HEDDLE_TRY(run::RankProgram program, run::RankProgram::Compile(local, graph));
  SeedCpu(seed);
  std::vector<std::vector<at::Tensor>> inputs(program.ranks().size());
  // Draws input by input, so that a graph that loses its last inputs keeps the numbers of the
  // others.
  for (const Input& input : graph.inputs()) {
    for (std::vector<at::Tensor>& of_rank : inputs)
      of_rank.push_back(MakeInput(graph, input, graph.type(input.value), false));
  }
  SeedCpu(seed + 1);
  return program.Run(inputs);
}

Result<std::vector<at::Tensor>> RunWhole(const Module& module, uint32_t seed, bool whole_numbers) {
  const Graph& graph = module.graphs[0];
  SeedCpu(seed);
  std::vector<at::Tensor> inputs;
  for (const Input& input : graph.inputs())
    inputs.push_back(
        MakeInput(graph, input, run::WholeType(graph, input.value, input.global), whole_numbers));
  return run::RunOnWhole(module.view == View::kGlobal ? Unplaced(module) : module, inputs);
}

std::string WhyDifferent(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                         Likeness likeness) {
  if (a.size() != b.size()) return fmt::format("{} outputs and {}", a.size(), b.size());
  for (size_t o = 0; o < a.size(); ++o) {
    bool same = likeness == Likeness::kBits     ? run::SameBits(a[o], b[o])
                : likeness == Likeness::kValues ? a[o].equal(b[o])
                                                : IsNear(a[o], b[o]);
    if (!same) return fmt::format("output {} differs", o);
  }
  return "";
}

}  // namespace heddle
