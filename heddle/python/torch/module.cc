// heddle._torch: runs graphs on the tensors of Python's torch.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/version.h>

#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"
#include "heddle/python/errors.h"
#include "heddle/run/runtime/rank_program.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace nanobind::detail {

template <>
struct type_caster<at::Tensor> {
  NB_TYPE_CASTER(at::Tensor, const_name("torch.Tensor"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    if (!THPVariable_Check(source.ptr())) return false;
    value = THPVariable_Unpack(source.ptr());
    return true;
  }
  static handle from_cpp(const at::Tensor& tensor, rv_policy, cleanup_list*) noexcept {
    if (!tensor.defined()) return none().release();
    return THPVariable_Wrap(tensor);
  }
};

}  // namespace nanobind::detail

namespace heddle::python {
namespace {

using TensorsByRank = std::vector<std::vector<at::Tensor>>;

// All ranks of a graph in this process.
class World {
 public:
  World(const std::string& text, const std::string& reducer)
      : program_(Take(Unlocked([&] { return Compile(text, reducer); }), "RunError")) {}

  TensorsByRank Run(const TensorsByRank& inputs) const {
    return Take(Unlocked([&] { return program_.Run(inputs); }), "RunError");
  }
  size_t ranks() const { return program_.ranks().size(); }

 private:
  static Result<run::RankProgram> Compile(const std::string& text, const std::string& reducer) {
    HEDDLE_TRY(Module module, ParseModule(text, "graph", Ops()));
    run::RankProgramOptions options;
    HEDDLE_TRY(options.reducer, run::Reducer::Parse(reducer));
    // Callers may write to results.
    options.share_results = false;
    return run::RankProgram::Compile(module, module.graphs[0], options);
  }

  run::RankProgram program_;
};

// Raises ImportError unless torch is the version whose ABI this module has.
void CheckTorch() {
  const std::string built = TORCH_VERSION;
  const auto loaded =
      nb::cast<std::string>(nb::str(nb::module_::import_("torch").attr("__version__")));
  if (loaded.substr(0, loaded.find('+')) == built) return;
  throw nb::import_error(("heddle._torch was built for torch " + built + ", and this is torch " +
                          loaded + "; `make python` builds it for the torch in .venv")
                             .c_str());
}

}  // namespace
}  // namespace heddle::python

NB_MODULE(_torch, module) {
  using heddle::python::World;
  heddle::python::CheckTorch();
  module.doc() = "Runs graphs on tensors of torch. Everything here is for the package `heddle`.";
  heddle::python::BindErrors(module);
  nb::class_<World>(
      module, "World",
      "All ranks of a graph in this process.\n\n"
      "`reducer` is the order of additions: `rank`, `gloo`, `ring:CHANNELS` or `tree`.")
      .def(nb::init<const std::string&, const std::string&>(), "text"_a, "reducer"_a = "rank")
      .def_prop_ro("ranks", &World::ranks, "The number of ranks.")
      .def("run", &World::Run, "inputs"_a,
           nb::sig("def run(self, inputs: list[list[torch.Tensor]]) -> list[list[torch.Tensor]]"),
           "Runs the graph on each rank's inputs, and returns each rank's outputs. Updates are in "
           "place.");
}
