// AtenCall: a node bound to the ATen operator that runs it.
//
// Binding looks up the operator by schema and prepares its arguments once: it fills in constants
// and leaves slots for tensors. Running fills the slots and calls the dispatcher, so there is no
// table of kernels. grouped_mm.h and attention_layout.h define the exceptions.
//
// The effect of the op determines the storage of the results. An update runs as the in-place
// variant of the op and overwrites its operands. A view shares the storage of its operand. All
// other results get storage of their own: where ATen returns an operand itself, AtenCall copies it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"
#include "heddle/run/aten/attr.h"
#include "heddle/run/aten/own_kernel.h"

namespace heddle::run {

// Returns ATen's operator for a name such as `aten.add.Tensor`; nullopt if ATen has no such
// operator.
std::optional<c10::OperatorHandle> FindOperator(std::string_view name);

class AtenCall {
 public:
  // Binds `node`. Ops without operands allocate on `device`. `size_of` resolves symbols among the
  // attributes.
  static Result<AtenCall> Bind(const Module& module, const Graph& graph, NodeId node,
                               c10::Device device, const SizeResolver& size_of = {});

  // Runs the op. `operands` are in the flat order of the node, with undefined tensors for absent
  // ones. `results` are in the order of the node's results, undefined where the op returns none.
  // `stack` is scratch space that callers reuse between calls. Throws what ATen throws.
  void Run(std::span<const at::Tensor* const> operands, torch::jit::Stack& stack,
           std::vector<at::Tensor>& results) const;

 private:
  explicit AtenCall(c10::OperatorHandle op) : op_(std::move(op)) {}

  // An argument of the operator: a constant, or `count` operands from `operand` on.
  struct Argument {
    enum class Kind : uint8_t { kConstant, kTensor, kOptional, kList, kOptionalList };
    Kind kind = Kind::kConstant;
    uint32_t operand = 0;
    uint32_t count = 0;
    c10::IValue constant = {};
  };
  void Push(const Argument& argument, std::span<const at::Tensor* const> operands,
            torch::jit::Stack& stack) const;

  c10::OperatorHandle op_;
  Effect effect_ = Effect::kPure;
  // Number of results, set for updates only.
  uint32_t result_count_ = 0;
  // Runs instead of op_, unless null.
  OwnKernel kernel_ = nullptr;
  std::vector<Argument> arguments_;
};

}  // namespace heddle::run
