// heddle._core: Heddle without libtorch, for the package in python/heddle.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "heddle/cli/cli.h"
#include "heddle/python/checkpoint.h"
#include "heddle/python/errors.h"
#include "heddle/python/fx_reader.h"
#include "heddle/python/graph.h"
#include "heddle/python/plan.h"
#include "heddle/python/program.h"
#include "heddle/python/search.h"

namespace {

// A whole process of the command line: failed checks abort it, and no Python code runs meanwhile.
int RunCommandLine(std::vector<std::string> args) {
  nanobind::gil_scoped_release release;
  std::vector<char*> pointers;
  for (std::string& arg : args) pointers.push_back(arg.data());
  int count = static_cast<int>(args.size());
  pointers.push_back(nullptr);
  return static_cast<int>(heddle::RunProgram(count, pointers.data()));
}

}  // namespace

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
  module.def("run_command_line", &RunCommandLine, nanobind::arg("args"),
             "Runs `heddle ARGS...`, whose first argument names the program, and returns the exit "
             "code.");
}
