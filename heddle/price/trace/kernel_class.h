// Groups kernels of a trace, so that measured and simulated times can be compared.
#pragma once

#include <string>
#include <string_view>

namespace heddle::price {

// Returns the class of a span: `matmul`, `attention`, `collective`, `copy`, ... Ops have the class
// of their family, and kernels of libraries that of the ops they are known to run. Copies between
// host and device are `copy`, and waits for collectives `wait`. Other spans are `other`. `category`
// and `name` are those of the trace.
std::string KernelClass(std::string_view category, std::string_view name);

}  // namespace heddle::price
