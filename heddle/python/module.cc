// heddle._core: Heddle without libtorch, for the package in python/heddle.
#include <nanobind/nanobind.h>

#include "heddle/python/checkpoint.h"
#include "heddle/python/errors.h"
#include "heddle/python/fx_reader.h"
#include "heddle/python/graph.h"
#include "heddle/python/plan.h"
#include "heddle/python/program.h"
#include "heddle/python/search.h"

NB_MODULE(_core, module) {
  module.doc() = "The compiler of Heddle. Everything here is for the package `heddle`.";
  module.attr("version") = HEDDLE_VERSION;
  // Other packages, torch._dynamo among them, keep objects to the end of the process.
  nanobind::set_leak_warnings(false);
  heddle::python::BindErrors(module);
  heddle::python::BindGraph(module);
  heddle::python::BindPlan(module);
  heddle::python::BindProgram(module);
  heddle::python::BindFxReader(module);
  heddle::python::BindSearch(module);
  heddle::python::BindCheckpoint(module);
}
