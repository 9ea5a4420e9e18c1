#include "heddle/run/train/resume.h"

#include <cstring>
#include <set>

#include <ATen/ops/empty.h>

#include "heddle/run/aten/dtype.h"
#include "heddle/run/runtime/shards.h"

namespace heddle::run {
namespace {

std::string NameOf(const Model& model, StateKind kind, size_t param) {
  const std::string& name = model.params[param].name;
  return kind == StateKind::kParam ? name : fmt::format("{}.{}", name, Name(kind));
}

constexpr StateKind kSaved[] = {StateKind::kParam, StateKind::kExpAvg, StateKind::kExpAvgSq,
                                StateKind::kMomentum};

// Describes the whole tensor of an input of a local graph.
TensorInfo InfoOf(const Graph& graph, const Input& input, std::string name) {
  TypeId whole = WholeType(graph, input.value, input.global);
  std::span<const int64_t> dims = graph.types().dims(whole);
  return {std::move(name), graph.types().dtype(whole), Sizes(dims.begin(), dims.end())};
}

class SnapshotMaker {
 public:
  SnapshotMaker(const Session& session, Snapshot& snapshot)
      : graph_(session.program().graph()),
        mesh_(session.program().module().mesh),
        ranks_(session.ranks()),
        snapshot_(snapshot) {
    if (session.program_axis()) pipeline_.Add(*session.program_axis());
  }

  // Adds a rank's shard of an input, if this rank saves it.
  void Add(std::string name, size_t input, size_t at, const at::Tensor& shard) {
    const Input& in = graph_.inputs()[input];
    const Placement& placement = graph_.placements()[in.global.placement];
    // A coordinate of a pipeline has only the tensors of its own stages.
    if (!IsFirstHolder(placement, mesh_, ranks_[at], pipeline_)) return;
    TensorInfo info = InfoOf(graph_, in, std::move(name));
    Slice slice = SliceOf(info.shape, placement, mesh_, ranks_[at]);
    auto copy = [shard](void* to) {
      at::Tensor plain = shard.cpu().contiguous();
      std::memcpy(to, plain.const_data_ptr(), plain.nbytes());
    };
    snapshot_.pieces.push_back({std::move(info), std::move(slice), ranks_[at], copy});
  }

 private:
  const Graph& graph_;
  const Mesh& mesh_;
  std::span<const int64_t> ranks_;
  Axes pipeline_;
  Snapshot& snapshot_;
};

}  // namespace

namespace {

void AddTo(Snapshot& snapshot, const Session& session, const Model& model) {
  SnapshotMaker maker(session, snapshot);
  for (size_t at = 0; at < session.ranks().size(); ++at) {
    for (size_t p = 0; p < model.params.size(); ++p) {
      for (StateKind kind : kSaved) {
        std::optional<size_t> input = session.InputOf(kind, p);
        if (input) maker.Add(NameOf(model, kind, p), *input, at, session.state(kind, at, p));
      }
    }
    for (const auto& [name, input, tensor] : session.updated_buffers(at))
      maker.Add(name, input, at, tensor);
  }
}

void AddTensors(const Graph& graph, const Model& model, std::vector<TensorInfo>& tensors) {
  std::set<ValueId> updated;
  for (const Output& output : graph.outputs()) {
    if (output.role == OutputRole::kUpdate) updated.insert(output.target);
  }
  for (const Input& input : graph.inputs()) {
    auto param = static_cast<size_t>(input.index);
    if (input.role == InputRole::kParam)
      tensors.push_back(InfoOf(graph, input, NameOf(model, StateKind::kParam, param)));
    if (input.role == InputRole::kBuffer && updated.contains(input.value) &&
        !CountsBatches(input.label))
      tensors.push_back(InfoOf(graph, input, input.label));
    for (StateKind kind : kMomentKinds) {
      if (input.role == InputRole::kOpt && input.label == Name(kind))
        tensors.push_back(InfoOf(graph, input, NameOf(model, kind, param)));
    }
  }
}

}  // namespace

Snapshot SnapshotOf(const GraphRun& run, const Model& model, std::string state) {
  Snapshot snapshot{run.steps(), std::move(state), {}};
  for (const Session* session : run.sessions()) AddTo(snapshot, *session, model);
  return snapshot;
}

std::vector<TensorInfo> TensorsToResume(const Model& model, const Module& step) {
  std::vector<TensorInfo> tensors;
  for (const Graph& graph : step.graphs) AddTensors(graph, model, tensors);
  return tensors;
}

SavedState StateOf(const Checkpoint& checkpoint, const Model& model) {
  auto read = [checkpoint](const std::string& name) -> Result<at::Tensor> {
    const TensorInfo* info = checkpoint.Find(name);
    HEDDLE_CHECK(info != nullptr, "the checkpoint was checked and lacks " + name);
    at::Tensor whole = at::empty(info->shape, at::TensorOptions().dtype(ToScalarType(info->dtype)));
    HEDDLE_RETURN_IF_ERROR(
        checkpoint.Read(name, WholeSlice(info->shape), whole.mutable_data_ptr()));
    return whole;
  };
  SavedState state;
  state.steps = checkpoint.step();
  state.param_state = [read, &model](StateKind kind, size_t param) {
    return read(NameOf(model, kind, param));
  };
  state.buffer = read;
  return state;
}

}  // namespace heddle::run
