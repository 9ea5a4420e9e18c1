// Converts between element types of Heddle and of ATen.
#pragma once

#include <c10/core/ScalarType.h>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/dtype.h"

namespace heddle::run {

c10::ScalarType ToScalarType(DType dtype);
// Fails for the few types that graphs do not support.
Result<DType> FromScalarType(c10::ScalarType type);

}  // namespace heddle::run
