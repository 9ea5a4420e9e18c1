// Compiled and simulated steps for the classes of python/heddle/program.py.
#pragma once

#include <nanobind/nanobind.h>

namespace heddle::python {

void BindProgram(nanobind::module_& module);

}  // namespace heddle::python
