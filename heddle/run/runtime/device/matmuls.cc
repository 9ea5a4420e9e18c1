#include "heddle/run/runtime/device/matmuls.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <torch/version.h>

#include <array>
#include <charconv>

#include "heddle/core/ops/ops.h"
#include "heddle/run/runtime/aten_backend.h"
#include "heddle/run/runtime/device/same_numbers.h"

namespace heddle::run {
namespace {

// Whether the storage of an operand of aten.mm has its dims in reverse order. MatmulStep checks the
// strides, so this may guess.
bool IsTransposed(const Graph& graph, ValueId value) {
  bool transposed = false;
  while (NodeId producer = graph[value].producer) {
    OpId op = graph[producer].op;
    if (op != op::t && op != op::transpose_int && op != op::permute) break;
    transposed = !transposed;
    value = graph.operands(producer)[0];
  }
  return transposed;
}

// cuBLASLt chooses algorithms for addresses that are multiples of 256.
bool IsStored(const at::Tensor& tensor, bool transposed) {
  int64_t slow = transposed ? 1 : 0;
  return tensor.stride(1 - slow) == 1 && tensor.stride(slow) == tensor.size(1 - slow) &&
         reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 256 == 0;
}

class LtMatmulKernel : public GroupKernel {
 public:
  LtMatmulKernel(const KernelDevice& device, LtMatmul product, const MatmulAlgorithm& algorithm)
      : device_(device), product_(std::move(product)), algorithm_(algorithm) {}

  void Run(std::span<const at::Tensor> inputs, std::span<const at::Tensor> outputs) const override {
    at::Tensor workspace;
    void* space = nullptr;
    if (algorithm_.workspace > 0) {
      workspace = at::empty({static_cast<int64_t>(algorithm_.workspace)},
                            inputs[0].options().dtype(at::kByte));
      space = workspace.mutable_data_ptr();
    }
    ThrowIfFailed(product_.Run(algorithm_, inputs[0].const_data_ptr(), inputs[1].const_data_ptr(),
                               outputs[0].mutable_data_ptr(), space, device_.stream()));
  }

 private:
  const KernelDevice& device_;
  LtMatmul product_;
  MatmulAlgorithm algorithm_;
};

class MatmulStep : public Step {
 public:
  MatmulStep(const RunPlan& plan, NodeId node, const MatmulShape& shape,
             std::shared_ptr<const GroupKernel> kernel, std::unique_ptr<Step> aten)
      : Step(Turn::kAlone),
        plan_(plan),
        node_(node),
        shape_(shape),
        kernel_(std::move(kernel)),
        aten_(std::move(aten)) {}

  void Run(size_t at, Tensors& values, Scratch& scratch) const override {
    std::span<const ValueId> operands = plan_.graph().operands(node_);
    std::array<at::Tensor, 2> inputs = {plan_.slots().TensorsOf(operands[0], values)[0],
                                        plan_.slots().TensorsOf(operands[1], values)[0]};
    if (!IsStored(inputs[0], shape_.a_transposed) || !IsStored(inputs[1], shape_.b_transposed)) {
      aten_->Run(at, values, scratch);
      return;
    }
    at::Tensor result = at::empty({shape_.m, shape_.n}, inputs[0].options());
    kernel_->Run(inputs, {&result, 1});
    plan_.slots().Set(plan_.graph()[node_].first_result, std::move(result), values);
  }

 private:
  const RunPlan& plan_;
  NodeId node_;
  MatmulShape shape_;
  std::shared_ptr<const GroupKernel> kernel_;
  std::unique_ptr<Step> aten_;
};

}  // namespace

std::optional<MatmulShape> MatmulShapeOf(const Graph& graph, NodeId node) {
  if (graph[node].op != op::mm) return std::nullopt;
  ValueId a = graph.operands(node)[0];
  ValueId b = graph.operands(node)[1];
  const TypeTable& types = graph.types();
  for (ValueId value : {a, b, graph[node].first_result}) {
    if (types.dtype(graph.type(value)) != DType::kBF16 ||
        std::ranges::any_of(types.dims(graph.type(value)),
                            [](Dim dim) { return IsSymbol(dim) || dim == 0; }))
      return std::nullopt;
  }
  std::span<const Dim> left = types.dims(graph.type(a));
  return MatmulShape{.m = left[0],
                     .n = types.dims(graph.type(b))[1],
                     .k = left[1],
                     .a_transposed = IsTransposed(graph, a),
                     .b_transposed = IsTransposed(graph, b)};
}

std::pair<at::Tensor, at::Tensor> MakeOperands(const MatmulShape& shape, c10::Device device) {
  auto make = [&](int64_t rows, int64_t columns, bool transposed, int64_t seed) {
    at::Tensor numbers =
        ProofNumbers(rows * columns, DType::kBF16, seed, /*with_special=*/false, device);
    return transposed ? numbers.view({columns, rows}).t() : numbers.view({rows, columns});
  };
  return {make(shape.m, shape.k, shape.a_transposed, 1),
          make(shape.k, shape.n, shape.b_transposed, 2)};
}

std::optional<MatmulChoice> MatmulChoices::Find(const MatmulShape& shape) const {
  std::optional<std::string> text = files_.Find(KeyOf(shape));
  if (!text) return std::nullopt;
  MatmulChoice choice;
  const char* at = text->data();
  const char* end = at + text->size();
  for (double* number : {&choice.aten_us, &choice.best_us}) {
    auto [after, error] = std::from_chars(at, end, *number);
    if (error != std::errc() || after == end || *after != ' ') return std::nullopt;
    at = after + 1;
  }
  std::string_view rest(at, static_cast<size_t>(end - at));
  if (rest == "aten") return choice;
  choice.algorithm = MatmulAlgorithm::Parse(rest);
  return choice.algorithm ? std::optional(choice) : std::nullopt;
}

Status MatmulChoices::Store(const MatmulShape& shape, const MatmulChoice& choice) const {
  return files_.Store(KeyOf(shape),
                      fmt::format("{:.3f} {:.3f} {}", choice.aten_us, choice.best_us,
                                  choice.algorithm ? choice.algorithm->Print() : "aten"));
}

std::string MatmulChoices::KeyOf(const MatmulShape& shape) const {
  return fmt::format("{}\n{}", machine_, shape.Format());
}

std::string MatmulMachine(const BlasLt& library, const KernelDevice& device) {
  return fmt::format("{}, cuBLASLt {}, libtorch {}, deterministic {}", device.Description(),
                     library.version(), TORCH_VERSION,
                     at::globalContext().deterministicAlgorithms());
}

Result<std::unique_ptr<GroupKernel>> MakeMatmulKernel(const BlasLt& library,
                                                      const KernelDevice& device,
                                                      const MatmulShape& shape,
                                                      const MatmulAlgorithm& algorithm) {
  HEDDLE_TRY(LtMatmul product, LtMatmul::Make(library, shape));
  HEDDLE_RETURN_IF_ERROR(product.Check(algorithm));
  return std::unique_ptr<GroupKernel>(
      std::make_unique<LtMatmulKernel>(device, std::move(product), algorithm));
}

bool ProvesMatmul(const GroupKernel& kernel, const MatmulShape& shape, c10::Device device) {
  auto [a, b] = MakeOperands(shape, device);
  at::Tensor expected = at::mm(a, b);
  at::Tensor own = at::empty_like(expected);
  std::array<at::Tensor, 2> inputs = {a, b};
  kernel.Run(inputs, {&own, 1});
  return SameNumbers(own, expected);
}

Result<std::unique_ptr<Step>> MakeMatmulStep(const RunPlan& plan, NodeId node,
                                             const MatmulShape& shape,
                                             std::shared_ptr<const GroupKernel> kernel) {
  HEDDLE_TRY(CompiledNodes aten, AtenBackend(plan).Compile(node));
  return std::unique_ptr<Step>(
      std::make_unique<MatmulStep>(plan, node, shape, std::move(kernel), std::move(aten.step)));
}

}  // namespace heddle::run
