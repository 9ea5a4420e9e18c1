// FX graphs in memory, node by node through Python's C API, as a ForeignProgram.
#pragma once

#include <nanobind/nanobind.h>

namespace heddle::python {

void BindFxReader(nanobind::module_& module);

}  // namespace heddle::python
