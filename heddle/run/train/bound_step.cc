#include "heddle/run/train/bound_step.h"

#include <charconv>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "heddle/core/ir/positions.h"
#include "heddle/core/ir/program.h"
#include "heddle/run/runtime/shards.h"

namespace heddle::run {

namespace {

// Puts the positions of a batch or buffer into the order in which ranks have them.
at::Tensor InRankOrder(at::Tensor tensor, const Placement& placement, const Mesh& mesh) {
  for (size_t d = 0; d < placement.splits.size(); ++d) {
    if (!IsHeadTail(placement.splits[d], mesh)) continue;
    auto dim = static_cast<int64_t>(d);
    std::vector<at::Tensor> parts;
    for (const Part& part : PositionOrder(tensor.size(dim), placement.splits[d], mesh))
      parts.push_back(tensor.narrow(dim, part.begin, part.size));
    tensor = at::cat(parts, dim);
  }
  return tensor;
}

// A batch input: a part of one micro-batch.
struct BatchLabel {
  BatchPart part = BatchPart::kTokens;
  int64_t micro_batch = 0;
};

// The label is `tokens`, or `tokens.3` for a micro-batch of a pipeline.
std::optional<BatchLabel> ReadBatchLabel(const Input& input) {
  if (input.role != InputRole::kBatch) return std::nullopt;
  std::string_view name = std::string_view(input.label).substr(0, input.label.find('.'));
  BatchLabel label;
  if (name == "labels") {
    label.part = BatchPart::kLabels;
  } else if (name == kDocumentPositions) {
    label.part = BatchPart::kDocumentPositions;
  } else if (name != "tokens") {
    return std::nullopt;
  }
  if (name.size() < input.label.size()) {
    const char* end = input.label.data() + input.label.size();
    std::from_chars(input.label.data() + name.size() + 1, end, label.micro_batch);
  }
  return label;
}

// Sequences of a batch input on all ranks.
int64_t RowsOf(const Graph& graph, const Input& input) {
  return graph.types().dims(WholeType(graph, input.value, input.global))[0];
}

// Sequences of a step: those of a micro-batch, or of all micro-batches of a pipeline, some of whose
// coordinates read none.
int64_t RowsOf(const Module& local) {
  int64_t rows = 0;
  for (const Graph& graph : local.graphs) {
    for (const Input& input : graph.inputs()) {
      std::optional<BatchLabel> label = ReadBatchLabel(input);
      if (label) rows = std::max(rows, (label->micro_batch + 1) * RowsOf(graph, input));
    }
  }
  return rows;
}

}  // namespace

StepNumbers::StepNumbers(c10::Device device)
    : step(at::empty({}, at::TensorOptions().device(device).dtype(at::kFloat))),
      token_count(at::empty({}, at::TensorOptions().device(device).dtype(at::kFloat))),
      lr_(at::empty({}, at::kDouble)),
      lr_on_device_(device.is_cpu() ? lr_ : at::empty({}, lr_.options().device(device))),
      narrow_lr_(at::empty({}, step.options())) {}

void StepNumbers::SetLr(double value) {
  for (at::Tensor* lr : {&lr_, &lr_on_device_, &narrow_lr_}) lr->fill_(value);
}

const at::Tensor& StepNumbers::LrOf(DType type, Space space) const {
  if (space == Space::kHost) return lr_;
  return type == DType::kF32 ? narrow_lr_ : lr_on_device_;
}

Result<BoundStep> BoundStep::Make(const Model& model, const Module& local,
                                  const RankProgramOptions& options) {
  const Graph& graph = ProgramOf(local, options.ranks.empty() ? 0 : options.ranks[0]);
  HEDDLE_TRY(RankProgram program, RankProgram::Compile(local, graph, options));
  BoundStep bound(std::move(program));
  bound.program_axis_ = ProgramAxis(local);
  bound.rows_ = RowsOf(local);
  bound.params_.resize(model.params.size());
  bound.FindInputs(model);
  bound.FindOutputs();
  size_t inputs = bound.program_.graph().inputs().size();
  bound.inputs_.assign(bound.program_.ranks().size(), Tensors(inputs));
  return bound;
}

bool BoundStep::FindBatchInput(size_t i) {
  std::optional<BatchLabel> label = ReadBatchLabel(program_.graph().inputs()[i]);
  if (label) batch_.push_back({i, label->part, label->micro_batch});
  return label.has_value();
}

void BoundStep::FindInputs(const Model& model) {
  const Graph& graph = program_.graph();
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Input& input = graph.inputs()[i];
    Place* place = nullptr;
    auto param = static_cast<size_t>(input.index);
    if (input.role == InputRole::kParam && param < params_.size()) place = &params_[param].value;
    if (input.role == InputRole::kOpt && param < params_.size()) {
      if (input.label == "exp_avg") place = &params_[param].exp_avg;
      if (input.label == "exp_avg_sq") place = &params_[param].exp_avg_sq;
      if (input.label == "momentum_buffer") place = &params_[param].momentum_buffer;
      if (input.label == "grad") place = &params_[param].grad_sum;
    }
    if (input.role == InputRole::kHyper) {
      if (input.label == "lr") place = &lr_;
      if (input.label == "step") place = &step_;
      if (input.label == kTokenCount) place = &token_count_;
    }
    if (place != nullptr) *place = i;
    bool buffer = input.role == InputRole::kBuffer && FindBuffer(model, input.label) != nullptr;
    if (buffer) buffers_[input.label] = i;
    HEDDLE_CHECK(place != nullptr || buffer || FindBatchInput(i),
                 "a training step has an unexpected input " + std::string(graph.name(input.value)));
  }
}

void BoundStep::FindOutputs() {
  const Graph& graph = program_.graph();
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    const Output& output = graph.outputs()[o];
    if (output.role == OutputRole::kLoss) loss_ = o;
    if (output.role == OutputRole::kMetric) {
      if (output.label == "grad_norm") {
        grad_norm_ = o;
      } else {
        metrics_.push_back(o);
      }
    }
    if (output.role == OutputRole::kGrad) params_[static_cast<size_t>(output.index)].grad = o;
  }
  std::map<ValueId, size_t> by_target;
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    if (graph.outputs()[o].role != OutputRole::kUpdate) continue;
    by_target[graph.outputs()[o].target] = o;
    update_outputs_.push_back(o);
  }
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    auto update = by_target.find(graph.inputs()[i].value);
    updates_.push_back(update != by_target.end());
    if (updates_[i] && !program_.updates(i)) copied_back_.emplace_back(i, update->second);
  }
}

std::vector<StepMetric> BoundStep::metrics() const {
  std::vector<StepMetric> out;
  for (size_t o : metrics_) out.push_back({program_.graph().outputs()[o].label, OutputAt(0, o)});
  return out;
}

at::Tensor BoundStep::ShardOfInput(size_t i, const at::Tensor& whole, size_t at) const {
  const Graph& graph = program_.graph();
  const Input& input = graph.inputs()[i];
  const Placement& placement = graph.placements()[input.global.placement];
  const Mesh& mesh = program_.module().mesh;
  bool buffer = input.role == InputRole::kBuffer;
  at::Tensor shard = ShardOf(buffer ? InRankOrder(whole, placement, mesh) : whole, placement, mesh,
                             program_.ranks()[at]);
  // An unsplit tensor is shared by all ranks, so none may update it in place.
  return updates_[i] && shard.is_same(whole) ? shard.clone() : shard;
}

void BoundStep::Bind(std::span<const RankState> states, const StepNumbers& numbers) {
  for (size_t at = 0; at < inputs_.size(); ++at) {
    auto bind = [&](Place place, const at::Tensor& tensor) {
      if (place) inputs_[at][*place] = tensor;
    };
    for (size_t p = 0; p < params_.size(); ++p) {
      bind(params_[p].value, states[at].params[p].value);
      bind(params_[p].exp_avg, states[at].params[p].exp_avg);
      bind(params_[p].exp_avg_sq, states[at].params[p].exp_avg_sq);
      bind(params_[p].momentum_buffer, states[at].params[p].momentum_buffer);
    }
    for (const auto& [name, place] : buffers_) bind(place, states[at].buffers.at(name));
    if (lr_) {
      const Graph& graph = program_.graph();
      TypeId type = graph.type(graph.inputs()[*lr_].value);
      bind(lr_, numbers.LrOf(graph.types().dtype(type), graph.types().space(type)));
    }
    bind(step_, numbers.step);
    bind(token_count_, numbers.token_count);
  }
}

void BoundStep::BindGradients(std::span<const RankState> states) {
  for (size_t at = 0; at < inputs_.size(); ++at) {
    for (size_t p = 0; p < params_.size(); ++p) {
      if (params_[p].grad_sum) inputs_[at][*params_[p].grad_sum] = states[at].params[p].grad;
    }
  }
}

// Each rank makes its own rows; ranks with the same rows share them.
Status BoundStep::SetBatch(const BatchSource& batches, int64_t step, int64_t first_row) {
  const Graph& graph = program_.graph();
  const Mesh& mesh = program_.module().mesh;
  auto place = [&](size_t i, const at::Tensor& rows, size_t at) {
    Placement rest = graph.placements()[graph.inputs()[i].global.placement];
    if (!rest.splits.empty()) rest.splits[0] = {};
    rest.Normalize();
    return ShardOf(InRankOrder(rows, rest, mesh), rest, mesh, program_.ranks()[at]);
  };
  std::map<int64_t, Batch> made;
  for (size_t at = 0; at < inputs_.size(); ++at) {
    for (const BatchPlace& which : batch_) {
      size_t i = which.input;
      int64_t rows = RowsOf(graph, graph.inputs()[i]);
      Axes split = graph.placements()[graph.inputs()[i].global.placement].split(0);
      Part part = PartAt(rows, split, mesh, program_.ranks()[at]);
      int64_t begin = first_row + which.micro_batch * rows + part.begin;
      auto [found, first] = made.try_emplace(begin);
      if (first) {
        HEDDLE_TRY(found->second, batches(step, begin, part.size));
      }
      const Batch& batch = found->second;
      at::Tensor all = which.part == BatchPart::kTokens   ? batch.tokens
                       : which.part == BatchPart::kLabels ? batch.labels
                                                          : DocumentPositions(batch.ends);
      at::Tensor placed = place(i, all, at);
      at::Tensor& input = inputs_[at][i];
      // A recorded run reads its batch at a fixed address. A copy from memory that is not pinned
      // would wait for earlier runs.
      bool on_host = program_.device().is_cpu();
      if (input.defined() && input.sizes() == placed.sizes()) {
        input.copy_(on_host ? placed : placed.pin_memory(), /*non_blocking=*/!on_host);
      } else if (on_host && recorder_ != nullptr) {
        input = placed.clone();
      } else {
        input = placed.to(program_.device());
      }
    }
  }
  return Done{};
}

Status BoundStep::Run(StepReplay::Mode mode, const RankProgram::Observer& observer) {
  // Frees outputs of the last run first, so that they do not add to this run's memory.
  outputs_.clear();
  if (recorder_ != nullptr && !observer) {
    HEDDLE_TRY(outputs_, replay_.Run(*recorder_, program_, inputs_, mode));
  } else {
    HEDDLE_TRY(outputs_, program_.Run(inputs_, observer));
  }
  at::NoGradGuard no_grad;
  for (size_t at = 0; at < inputs_.size(); ++at) {
    for (const auto& [input, output] : copied_back_) inputs_[at][input].copy_(outputs_[at][output]);
    for (size_t output : update_outputs_) outputs_[at][output].reset();
    if (recorder_ != nullptr) continue;
    for (const BatchPlace& place : batch_) inputs_[at][place.input].reset();
  }
  return Done{};
}

at::Tensor BoundStep::TakeGradient(size_t at, size_t param) {
  Place place = params_[param].grad;
  return place && !outputs_.empty() ? std::move(outputs_[at][*place]) : at::Tensor();
}

void BoundStep::ReleaseGradients() {
  for (Tensors& outputs : outputs_) {
    for (const ParamPlaces& places : params_) {
      if (places.grad) outputs[*places.grad].reset();
    }
  }
}

at::Tensor BoundStep::OutputAt(size_t at, Place place) const {
  return place && !outputs_.empty() ? outputs_[at][*place] : at::Tensor();
}

}  // namespace heddle::run
