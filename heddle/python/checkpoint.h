// Checkpoints in Heddle's format (docs/checkpoints.md), for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace heddle::python {

void BindCheckpoint(nanobind::module_& module);

}  // namespace heddle::python
