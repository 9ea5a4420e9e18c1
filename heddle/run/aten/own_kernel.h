// The type of our own kernels, for ops that ATen cannot run as graphs need them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace heddle::run {

// Pops its arguments from the stack and pushes its results, as the operator does. It may call the
// operator.
using OwnKernel = void (*)(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace heddle::run
