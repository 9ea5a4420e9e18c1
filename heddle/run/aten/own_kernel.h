// A kernel of our own, for an op that ATen cannot run as graphs need it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace heddle::run {

// Takes its arguments off the stack and leaves its results there, as the operator would. It may call the operator.
using OwnKernel = void (*)(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace heddle::run
