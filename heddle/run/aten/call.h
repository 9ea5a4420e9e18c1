// AtenCall: a node bound to the ATen operator that runs it.
//
// Binding looks the operator up by schema and lays out its arguments once: constants in place, slots for tensors. Running fills
// the slots and calls the dispatcher; there is no table of kernels. The exceptions are in grouped_mm.h and
// attention_layout.h.
//
// Results lie in memory as the effect of the op says. An update runs as its in-place twin, so that its results are its operands,
// written over. A view is what ATen gives. Everything else is made anew: ATen hands some operands back as they are, and such a
// result is copied.
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

// `aten.add.Tensor` as ATen spells it, or nothing if ATen has no such operator.
std::optional<c10::OperatorHandle> FindOperator(std::string_view name);

class AtenCall {
 public:
  // Tensors that the op makes from nothing go to `device`; symbols among the attributes become what `size_of` says.
  static Result<AtenCall> Bind(const Module& module, const Graph& graph, NodeId node,
                               c10::Device device, const SizeResolver& size_of = {});

  // `operands` in the flat order of the node; undefined tensors where one is absent. Results in the order of the node's;
  // undefined where the op leaves one so. `stack` is room for arguments, which callers keep from call to call. Throws what ATen
  // throws.
  void Run(std::span<const at::Tensor* const> operands, torch::jit::Stack& stack,
           std::vector<at::Tensor>& results) const;

 private:
  explicit AtenCall(c10::OperatorHandle op) : op_(std::move(op)) {}

  // An argument of the operator: a constant, or operands.
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
  // Of an update.
  uint32_t result_count_ = 0;
  // Runs in the place of op_; usually null.
  OwnKernel kernel_ = nullptr;
  std::vector<Argument> arguments_;
};

}  // namespace heddle::run
