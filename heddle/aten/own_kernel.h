// A kernel of our own, for an op whose kernel in ATen does not do.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace heddle {

// Takes and leaves the stack that the operator would, and may call it.
using OwnKernel = void (*)(const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace heddle
