#include "heddle/train/session.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "heddle/aten/dtype.h"
#include "heddle/runtime/shards.h"
#include "heddle/runtime/whole.h"

namespace heddle {
namespace {

constexpr std::string_view kHeldNames[] = {"parameter", "exp_avg", "exp_avg_sq", "gradient"};

DType ParamType(const Model& model) {
  return model.numerics.compute == DType::kF64 ? DType::kF64 : DType::kF32;
}

const StepInput* FindBuffer(const Model& model, const std::string& name) {
  for (const StepInput& input : model.inputs) {
    if (input.role == InputRole::kBuffer && input.name == name) return &input;
  }
  return nullptr;
}

}  // namespace

std::string_view Name(Held held) { return kHeldNames[static_cast<size_t>(held)]; }

ParamSource InitialParams(const Model& model, uint64_t seed) {
  return [&model, seed](size_t param) -> Result<at::Tensor> {
    return InitParam(model, model.params[param], seed, ParamType(model));
  };
}

BatchSource SyntheticBatches(const Model& model, uint64_t seed) {
  return [&model, seed](int64_t step, int64_t first_row, int64_t rows) {
    return MakeBatch(model.config.vocab_size, rows, model.batch.seq_len, seed, step, first_row);
  };
}

Result<Session> Session::Make(const Model& model, const Module& local,
                              const SessionOptions& options) {
  HEDDLE_TRY(World world, World::Compile(local, local.graphs[0], options.world));
  Session session(std::move(world));
  session.batches_ = options.batches;
  session.params_.resize(model.params.size());
  session.FindInputs(model);
  session.FindOutputs();
  HEDDLE_RETURN_IF_ERROR(session.InitState(model, options));
  return session;
}

void Session::FindInputs(const Model& model) {
  const Graph& graph = world_.graph();
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Input& input = graph.inputs()[i];
    Place* place = nullptr;
    auto param = static_cast<size_t>(input.index);
    if (input.role == InputRole::kParam && param < params_.size()) place = &params_[param].param;
    if (input.role == InputRole::kOpt && param < params_.size()) {
      if (input.label == "exp_avg") place = &params_[param].exp_avg;
      if (input.label == "exp_avg_sq") place = &params_[param].exp_avg_sq;
    }
    if (input.role == InputRole::kBatch) {
      if (input.label == "tokens") place = &tokens_;
      if (input.label == "labels") place = &labels_;
    }
    if (input.role == InputRole::kHyper) {
      if (input.label == "lr") place = &lr_;
      if (input.label == "step") place = &step_;
    }
    if (place != nullptr) *place = i;
    HEDDLE_CHECK(place != nullptr || FindBuffer(model, input.label) != nullptr,
                 "a training step has no input " + std::string(graph.name(input.value)));
  }
  HEDDLE_CHECK(tokens_ && labels_ && lr_ && step_, "the graph is no training step");
}

void Session::FindOutputs() {
  const Graph& graph = world_.graph();
  for (size_t o = 0; o < graph.outputs().size(); ++o) {
    const Output& output = graph.outputs()[o];
    if (output.role == OutputRole::kLoss) loss_ = o;
    if (output.role == OutputRole::kMetric && output.label == "grad_norm") grad_norm_ = o;
    if (output.role == OutputRole::kUpdate) {
      auto input = std::ranges::find(graph.inputs(), output.target, &Input::value);
      auto i = static_cast<size_t>(input - graph.inputs().begin());
      if (!world_.updates(i)) updates_.emplace_back(o, i);
    }
    if (output.role == OutputRole::kGrad) params_[static_cast<size_t>(output.index)].grad = o;
  }
}

at::Tensor Session::Shard(size_t i, const at::Tensor& whole, size_t at) const {
  const Graph& graph = world_.graph();
  at::Tensor shard = ShardOf(whole, graph.placements()[graph.inputs()[i].global.placement],
                             world_.module().mesh, ranks()[at]);
  // A whole that nothing splits is shared by all ranks, which must not write over it.
  return world_.updates(i) && shard.is_same(whole) ? shard.clone() : shard;
}

Status Session::InitState(const Model& model, const SessionOptions& options) {
  const Graph& graph = world_.graph();
  at::TensorOptions device = at::TensorOptions().device(options.world.device);
  inputs_.assign(ranks().size(), Tensors(graph.inputs().size()));
  for (size_t p = 0; p < params_.size(); ++p) {
    if (!params_[p].param) continue;
    HEDDLE_TRY(at::Tensor whole, options.params(p));
    for (size_t at = 0; at < inputs_.size(); ++at) {
      at::Tensor own = Shard(*params_[p].param, whole, at).to(device.device());
      inputs_[at][*params_[p].param] = own;
      for (Place moment : {params_[p].exp_avg, params_[p].exp_avg_sq}) {
        if (moment) inputs_[at][*moment] = at::zeros(own.sizes(), own.options());
      }
    }
  }
  at::Tensor lr = at::empty({}, at::kDouble);
  at::Tensor step = at::empty({}, device.dtype(at::kFloat));
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Input& input = graph.inputs()[i];
    at::Tensor buffer;
    if (input.role == InputRole::kBuffer)
      buffer = MakeBuffer(model, *FindBuffer(model, input.label));
    for (size_t at = 0; at < inputs_.size(); ++at) {
      if (buffer.defined()) inputs_[at][i] = Shard(i, buffer, at).to(device.device());
      inputs_[at][*lr_] = lr;
      inputs_[at][*step_] = step;
    }
  }
  return Done{};
}

// Each rank makes its own rows; ranks that have the same ones share them.
void Session::SetBatch(int64_t step) {
  const Graph& graph = world_.graph();
  const Mesh& mesh = world_.module().mesh;
  auto place = [&](size_t i, const at::Tensor& rows, size_t at) {
    Placement rest = graph.placements()[graph.inputs()[i].global.placement];
    if (!rest.splits.empty()) rest.splits[0] = {};
    rest.Normalize();
    return ShardOf(rows, rest, mesh, ranks()[at]).to(inputs_[at][*step_].device());
  };
  const Input& tokens = graph.inputs()[*tokens_];
  Axes split = graph.placements()[tokens.global.placement].split(0);
  int64_t whole = graph.types().dims(WholeType(graph, tokens.value, tokens.global))[0];
  std::map<int64_t, Batch> made;
  for (size_t at = 0; at < inputs_.size(); ++at) {
    Part part = PartAt(whole, split, mesh, ranks()[at]);
    auto [found, first] = made.try_emplace(part.begin);
    if (first) found->second = batches_(step, part.begin, part.size);
    inputs_[at][*tokens_] = place(*tokens_, found->second.tokens, at);
    inputs_[at][*labels_] = place(*labels_, found->second.labels, at);
  }
}

Status Session::Step(double lr, const World::Observer& observer) {
  SetBatch(steps_ + 1);
  inputs_[0][*lr_].fill_(lr);
  inputs_[0][*step_].fill_(steps_ + 1);
  HEDDLE_TRY(outputs_, world_.Run(inputs_, observer));
  for (size_t at = 0; at < inputs_.size(); ++at) {
    for (auto [output, input] : updates_) inputs_[at][input] = outputs_[at][output];
  }
  ++steps_;
  return Done{};
}

at::Tensor Session::OutputAt(size_t at, Place place) const {
  return place && !outputs_.empty() ? outputs_[at][*place] : at::Tensor();
}

at::Tensor Session::held(Held held, size_t at, size_t param) const {
  const ParamPlaces& places = params_[param];
  if (held == Held::kGrad) return OutputAt(at, places.grad);
  Place place = held == Held::kParam    ? places.param
                : held == Held::kExpAvg ? places.exp_avg
                                        : places.exp_avg_sq;
  return place ? inputs_[at][*place] : at::Tensor();
}

}  // namespace heddle
