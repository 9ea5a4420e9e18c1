#include "heddle/python/checkpoint.h"

#include <cstring>
#include <memory>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "heddle/python/errors.h"
#include "heddle/run/checkpoint/checkpoint.h"
#include "heddle/run/checkpoint/writer.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace heddle::python {
namespace {

using run::Sizes;

// Name, element type, whole sizes, offset and sizes of the part, address of its bytes, and the rank
// that saves it.
using PieceOfPython = std::tuple<std::string, std::string, Sizes, Sizes, Sizes, uintptr_t, int64_t>;

DType DTypeOf(const std::string& name) {
  std::optional<DType> dtype = ParseDType(name);
  if (!dtype) Raise("RunError", {MakeDiagnostic(Diag::kCheckpoint, "no element type `{}`", name)});
  return *dtype;
}

class WriterOfPython {
 public:
  WriterOfPython(const std::string& folder, int64_t world, int64_t rank, int64_t keep,
                 int64_t begin_step, const std::string& run, int64_t timeout_seconds,
                 const std::vector<std::pair<std::string, std::string>>& texts)
      : writer_(Take(Unlocked([&] {
                       return run::CheckpointWriter::Open(
                           {.folder = folder,
                            .world = world,
                            .ranks = {rank},
                            .keep = keep,
                            .begin_step = begin_step,
                            .run = run,
                            .timeout = std::chrono::seconds(timeout_seconds),
                            .texts = texts});
                     }),
                     "RunError")) {}

  // Returns when the tensors are copied.
  void Save(int64_t step, const std::string& state, const std::vector<PieceOfPython>& pieces) {
    run::Snapshot snapshot{.step = step, .state = state, .pieces = {}};
    for (const auto& [name, dtype, whole, offset, shape, data, rank] : pieces) {
      run::SnapshotPiece piece;
      piece.tensor = {name, DTypeOf(dtype), whole};
      piece.slice = {offset, shape};
      piece.rank = rank;
      size_t bytes = static_cast<size_t>(run::BytesOf(piece.tensor.dtype, shape));
      piece.copy = [data, bytes](void* to) {
        if (bytes > 0) std::memcpy(to, reinterpret_cast<const void*>(data), bytes);
      };
      snapshot.pieces.push_back(std::move(piece));
    }
    Take(Unlocked([&] { return writer_->Save(snapshot); }), "RunError");
  }

  void Finish() {
    Take(Unlocked([&] { return writer_->Finish(); }), "RunError");
  }

 private:
  std::unique_ptr<run::CheckpointWriter> writer_;
};

class CheckpointOfPython {
 public:
  CheckpointOfPython(const std::string& folder, std::optional<int64_t> step,
                     std::optional<int64_t> newest)
      : checkpoint_(Open(folder, step, newest)) {}

  int64_t step() const { return checkpoint_.step(); }
  const std::string& state() const { return checkpoint_.state(); }
  const std::vector<std::string>& notes() const { return checkpoint_.notes(); }
  std::vector<std::tuple<std::string, std::string, Sizes>> tensors() const {
    std::vector<std::tuple<std::string, std::string, Sizes>> out;
    for (const run::TensorInfo& tensor : checkpoint_.tensors())
      out.emplace_back(tensor.name, std::string(Name(tensor.dtype)), tensor.shape);
    return out;
  }
  void Check(const std::vector<std::tuple<std::string, std::string, Sizes>>& expected) const {
    std::vector<run::TensorInfo> tensors;
    for (const auto& [name, dtype, shape] : expected)
      tensors.push_back({name, DTypeOf(dtype), shape});
    Take(checkpoint_.CheckTensors(tensors), "RunError");
  }
  void Read(const std::string& name, const Sizes& offset, const Sizes& shape, uintptr_t to) const {
    Take(Unlocked([&] {
           return checkpoint_.Read(name, {offset, shape}, reinterpret_cast<void*>(to));
         }),
         "RunError");
  }

 private:
  static run::Checkpoint Open(const std::string& folder, std::optional<int64_t> step,
                              std::optional<int64_t> newest) {
    std::optional<run::Checkpoint> found = Take(
        Unlocked([&] { return run::OpenCheckpoint(folder, {.step = step, .newest = newest}); }),
        "RunError");
    if (!found)
      Raise("RunError", {MakeDiagnostic(Diag::kCheckpoint, "`{}` has no checkpoint", folder)});
    return *std::move(found);
  }

  run::Checkpoint checkpoint_;
};

}  // namespace

void BindCheckpoint(nb::module_& module) {
  nb::class_<WriterOfPython>(module, "CheckpointWriter")
      .def(nb::init<const std::string&, int64_t, int64_t, int64_t, int64_t, const std::string&,
                    int64_t, const std::vector<std::pair<std::string, std::string>>&>(),
           "folder"_a, nb::kw_only(), "world"_a, "rank"_a, "keep"_a, "begin_step"_a, "run"_a,
           "timeout"_a, "texts"_a)
      .def("save", &WriterOfPython::Save, "step"_a, "state"_a, "pieces"_a)
      .def("finish", &WriterOfPython::Finish);
  nb::class_<CheckpointOfPython>(module, "Checkpoint")
      .def(nb::init<const std::string&, std::optional<int64_t>, std::optional<int64_t>>(),
           "folder"_a, "step"_a = nb::none(), "newest"_a = nb::none())
      .def_prop_ro("step", &CheckpointOfPython::step)
      .def_prop_ro("state", &CheckpointOfPython::state)
      .def_prop_ro("notes", &CheckpointOfPython::notes)
      .def_prop_ro("tensors", &CheckpointOfPython::tensors)
      .def("check", &CheckpointOfPython::Check, "expected"_a)
      .def("read", &CheckpointOfPython::Read, "name"_a, "offset"_a, "shape"_a, "to"_a);
}

}  // namespace heddle::python
