#include "test/golden/small_inputs.h"

#include <random>

#include <ATen/ops/from_blob.h>

#include "heddle/run/aten/dtype.h"
#include "heddle/run/runtime/shards.h"

namespace heddle {
namespace {

Result<at::Tensor> SmallNumbers(const Graph& graph, const Input& input, std::mt19937& random) {
  TypeId type = run::WholeType(graph, input.value, input.global);
  int64_t count = 1;
  for (Dim size : graph.types().dims(type)) {
    if (IsSymbol(size))
      return Error(Diag::kSymbolicSize, "input %{} has no fixed size", graph.name(input.value));
    count *= size;
  }
  DType dtype = graph.types().dtype(type);
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i) {
    double number = static_cast<double>(random() % 3);
    if (IsFloat(dtype)) number = (1 + static_cast<double>(random() % 2)) * (random() % 2 ? 1 : -1);
    numbers.push_back(number);
  }
  std::span<const Dim> dims = graph.types().dims(type);
  return at::from_blob(numbers.data(), {dims.data(), dims.size()}, at::kDouble)
      .to(run::ToScalarType(dtype), /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

Result<std::vector<at::Tensor>> SmallInputs(const Module& module) {
  std::mt19937 random(1);
  std::vector<at::Tensor> inputs;
  for (const Input& input : module.graphs[0].inputs()) {
    HEDDLE_TRY(at::Tensor numbers, SmallNumbers(module.graphs[0], input, random));
    inputs.push_back(std::move(numbers));
  }
  return inputs;
}

}  // namespace heddle
