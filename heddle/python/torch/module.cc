// heddle._torch: runs graphs on the tensors of Python's torch.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/version.h>

#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"
#include "heddle/python/errors.h"
#include "heddle/run/runtime/device/graph_recorder.h"
#include "heddle/run/runtime/device/own_kernels.h"
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

// The program of one rank on a device, bound to its input tensors: with Heddle's kernels on a GPU.
// If it records, the third run becomes a CUDA graph, which later runs replay.
class DeviceProgram {
 public:
  DeviceProgram(const std::string& text, const std::string& device, bool record)
      : device_(device),
        kernels_(device_.is_cuda() ? Open() : nullptr),
        program_(Take(Unlocked([&] { return Compile(text); }), "RunError")) {
    if (record && device_.is_cuda()) Record();
  }
  DeviceProgram(const DeviceProgram&) = delete;
  DeviceProgram& operator=(const DeviceProgram&) = delete;

  void Bind(std::vector<at::Tensor> inputs) {
    inputs_ = {std::move(inputs)};
    replay_ = {};
    runs_ = 0;
  }

  std::vector<at::Tensor> Run() {
    auto run = [&]() -> Result<TensorsByRank> {
      if (recorder_ == nullptr) return program_.Run(inputs_);
      auto mode = ++runs_ < 3 ? run::StepReplay::Mode::kWarmUp : run::StepReplay::Mode::kRecord;
      return replay_.Run(*recorder_, program_, inputs_, mode);
    };
    return Take(Unlocked(run), "RunError")[0];
  }

  bool is_recorded() const { return replay_.is_recorded(); }
  std::vector<std::string> Notes() const {
    std::vector<std::string> notes = notes_;
    if (replay_.refusal())
      notes.push_back("the step runs as launches, not as a CUDA graph: " + *replay_.refusal());
    return notes;
  }

 private:
  std::unique_ptr<run::Kernels> Open() {
    auto notice = [this](const std::string& line) { notes_.push_back(line); };
    Result<std::unique_ptr<run::Kernels>> opened = run::OpenKernels(device_, notice);
    if (opened.ok()) return *std::move(opened);
    notice("ATen runs every op: " + opened.diagnostics()[0].message);
    return nullptr;
  }

  Result<run::RankProgram> Compile(const std::string& text) {
    HEDDLE_TRY(Module module, ParseModule(text, "graph", Ops()));
    if (module.mesh.ranks() != 1)
      return Error(Diag::kMeshSize, "the program is for {} ranks, expected one",
                   module.mesh.ranks());
    run::RankProgramOptions options;
    options.device = device_;
    if (kernels_ != nullptr)
      options.kernels = [this](const Graph& graph) { return ArrangeKernels(graph, *kernels_); };
    return run::RankProgram::Compile(module, module.graphs[0], options);
  }

  void Record() {
    Result<std::unique_ptr<run::RunRecorder>> made = run::MakeGraphRecorder(device_);
    if (made.ok()) {
      recorder_ = *std::move(made);
    } else {
      notes_.push_back("the step runs as launches, not as a CUDA graph: " +
                       made.diagnostics()[0].message);
    }
  }

  c10::Device device_;
  std::vector<std::string> notes_;
  std::unique_ptr<run::Kernels> kernels_;
  run::RankProgram program_;
  std::unique_ptr<run::RunRecorder> recorder_;
  run::StepReplay replay_;
  TensorsByRank inputs_;
  int64_t runs_ = 0;
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
  using heddle::python::DeviceProgram;
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
  nb::class_<DeviceProgram>(
      module, "DeviceProgram",
      "The program of one rank on a device, bound to its input tensors.\n\n"
      "On a GPU it has Heddle's kernels. With `record`, the third run becomes a CUDA graph.")
      .def(nb::init<const std::string&, const std::string&, bool>(), "text"_a, "device"_a,
           "record"_a)
      .def_prop_ro("is_recorded", &DeviceProgram::is_recorded, "Whether runs replay a CUDA graph.")
      .def_prop_ro("notes", &DeviceProgram::Notes, "Kernels and graphs that are not used, and why.")
      .def("bind", &DeviceProgram::Bind, "inputs"_a,
           nb::sig("def bind(self, inputs: list[torch.Tensor]) -> None"),
           "Sets the tensors that later runs read. Updates are in place.")
      .def("run", &DeviceProgram::Run, nb::sig("def run(self) -> list[torch.Tensor]"),
           "Runs the graph. Results of a replayed run are the same tensors every time.");
}
