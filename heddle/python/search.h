// The search for plans of a captured step.
#pragma once

#include <nanobind/nanobind.h>

namespace heddle::python {

void BindSearch(nanobind::module_& module);

}  // namespace heddle::python
