#include "heddle/runtime/world.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include <ATen/core/grad_mode.h>

#include "heddle/aten/dtype.h"
#include "heddle/aten/said.h"
#include "heddle/ir/print.h"
#include "heddle/runtime/fault.h"

namespace heddle {
namespace {

// Whether a tensor has the element type and the sizes of `type` on this rank. A named symbol may be any size up to its bound.
bool Fits(const at::Tensor& tensor, const Graph& graph, TypeId type, const Mesh& mesh,
          int64_t rank) {
  const TypeTable& types = graph.types();
  if (type == TypeTable::kNoneType || !tensor.defined())
    return type == TypeTable::kNoneType && !tensor.defined();
  std::span<const Dim> dims = types.dims(type);
  if (tensor.scalar_type() != ToScalarType(types.dtype(type)) ||
      static_cast<size_t>(tensor.dim()) != dims.size())
    return false;
  SizeResolver size_of = SizesAt(mesh, rank);
  for (size_t d = 0; d < dims.size(); ++d) {
    int64_t size = tensor.size(static_cast<int64_t>(d));
    std::optional<int64_t> expected = dims[d];
    if (IsSymbol(dims[d])) expected = size_of(types.symbols()[dims[d]]);
    if (expected ? size != *expected : size > types.symbols().Bound(dims[d])) return false;
  }
  return true;
}

}  // namespace

// What one run needs besides the program. The buffers are kept from node to node.
struct World::Running {
  std::vector<Tensors> values;
  Tensors operands;
  Tensors results;
  // By Step::first_pending, and the groups from there on.
  std::vector<std::unique_ptr<Pending>> pending;
};

World::World(Module module, const Liveness& liveness)
    : module_(std::move(module)),
      slots_(graph(), liveness),
      communicators_(module_.mesh, graph()),
      updated_(graph().inputs().size(), false),
      written_over_(graph().node_count(), false) {
  std::vector<bool> storages(liveness.storages().size(), false);
  for (NodeId node : graph().nodes()) {
    if (graph().op(node).effect() != Effect::kUpdate) continue;
    // The storage of a result is that of the operand it takes over.
    for (ValueId v : graph().results(node)) storages[liveness.of(v).index()] = true;
  }
  for (size_t i = 0; i < graph().inputs().size(); ++i)
    updated_[i] = storages[liveness.of(graph().inputs()[i].value).index()];
  for (StorageId id : liveness.storages().ids()) {
    NodeId birth = liveness.storages()[id].birth;
    if (birth && storages[id.index()]) written_over_[birth] = true;
  }
}

Result<World> World::Compile(const Module& module, const Graph& graph,
                             const WorldOptions& options) {
  if (module.view != View::kLocal && module.mesh.ranks() > 1) {
    return Error(Diag::kRunFault, "@{} is global, on {} ranks; only local graphs run on ranks",
                 graph.name(), module.mesh.ranks());
  }
  World world(Module{module.view, module.mesh, {graph}}, Liveness(graph));
  world.ranks_ = options.ranks;
  world.transport_ = options.transport;
  if (!world.transport_) {
    world.transport_ = std::make_shared<LockstepTransport>(options.reducer);
    world.ranks_.resize(static_cast<size_t>(module.mesh.ranks()));
    std::iota(world.ranks_.begin(), world.ranks_.end(), 0);
  }
  world.FindGroups();
  for (NodeId id : graph.nodes()) {
    HEDDLE_TRY(Step step, world.CompileNode(id, options));
    if (step.collective) {
      step.first_pending = world.pending_count_;
      world.pending_count_ += world.groups_[world.communicators_.of(id).index()].size();
    }
    world.steps_.Add(std::move(step));
  }
  return world;
}

void World::FindGroups() {
  for (const Communicator& communicator : communicators_.all()) {
    std::vector<Group>& groups = groups_.emplace_back();
    for (const std::vector<int64_t>& members : communicator.groups) {
      Group group;
      for (int64_t rank : members) {
        auto at = std::ranges::find(ranks_, rank);
        if (at == ranks_.end()) continue;
        group.at.push_back(static_cast<size_t>(at - ranks_.begin()));
        group.ranks.push_back(rank);
      }
      if (!group.at.empty()) groups.push_back(std::move(group));
    }
  }
}

Result<World::Step> World::CompileNode(NodeId node, const WorldOptions& options) const {
  Step step;
  OpId op = graph()[node].op;
  if (op == op::comm_wait) return step;
  if (LocalCall::Runs(op)) {
    step.local.emplace(module_.mesh, graph(), node, options.device);
  } else if (Collective::Is(op)) {
    if (graph().attrs(node).Find("sizes") != nullptr)
      return Error(Diag::kRunFault,
                   "`%{}` exchanges parts of unequal sizes; such graphs can be simulated, not run",
                   graph().name(graph()[node].first_result));
    step.collective.emplace(module_.mesh, graph(), node);
    step.share = options.share_results && !written_over_[node];
  } else {
    bool same = !HasSymbols(graph().attrs(node));
    for (int64_t rank : std::span(ranks_).first(same ? 1 : ranks_.size())) {
      HEDDLE_TRY(AtenCall call, AtenCall::Bind(module_, graph(), node, options.device,
                                               SizesAt(module_.mesh, rank)));
      step.calls.push_back(std::move(call));
    }
  }
  return step;
}

Status World::CheckInputs(std::span<const Tensors> inputs_by_rank) const {
  HEDDLE_CHECK(inputs_by_rank.size() == ranks_.size(),
               "a world was run with inputs of another number of ranks than it has");
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const Tensors& inputs = inputs_by_rank[r];
    HEDDLE_CHECK(inputs.size() == graph().inputs().size(),
                 "a world was run with another number of inputs than its graph has");
    for (size_t i = 0; i < inputs.size(); ++i) {
      ValueId value = graph().inputs()[i].value;
      TypeId type = graph().type(value);
      if (Fits(inputs[i], graph(), type, module_.mesh, ranks_[r])) continue;
      return Error(Diag::kRunFault, "{}input `%{}` is {}, the graph has {}", Where({&ranks_[r], 1}),
                   graph().name(value), TensorText(inputs[i]), PrintType(module_, graph(), type));
    }
  }
  CheckUpdatedInputs(inputs_by_rank);
  return Done{};
}

// Two ranks that share what both write over would update it twice.
void World::CheckUpdatedInputs(std::span<const Tensors> inputs_by_rank) const {
  std::unordered_set<const void*> seen;
  for (const Tensors& inputs : inputs_by_rank) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!updated_[i] || inputs[i].numel() == 0) continue;
      HEDDLE_CHECK(seen.insert(inputs[i].storage().data()).second,
                   "two ranks share the tensor of an input that is updated");
    }
  }
}

Result<std::vector<std::vector<at::Tensor>>> World::Run(
    std::span<const std::vector<at::Tensor>> inputs_by_rank, const Observer& observer) const {
  HEDDLE_RETURN_IF_ERROR(CheckInputs(inputs_by_rank));
  at::NoGradGuard no_grad;
  Running running;
  running.pending.resize(pending_count_);
  for (const Tensors& inputs : inputs_by_rank) running.values.push_back(slots_.Start(inputs));
  for (NodeId id : graph().nodes()) {
    HEDDLE_RETURN_IF_ERROR(RunNode(id, running));
    if (observer) observer(id, running.values);
    for (Tensors& values : running.values) slots_.Release(id, values);
  }
  std::vector<Tensors> outputs;
  for (const Tensors& values : running.values) outputs.push_back(slots_.Outputs(values));
  return outputs;
}

Result<std::vector<at::Tensor>> World::RunAlone(const std::vector<at::Tensor>& inputs) const {
  HEDDLE_TRY(std::vector<std::vector<at::Tensor>> outputs, Run({&inputs, 1}));
  return std::move(outputs[0]);
}

Status World::RunNode(NodeId node, Running& running) const {
  const Step& step = steps_[node];
  if (step.collective) {
    size_t launch = step.first_pending;
    for (const Group& group : groups_[communicators_.of(node).index()])
      HEDDLE_RETURN_IF_ERROR(Start(node, group, running.pending[launch++], running));
    return Done{};
  }
  if (graph()[node].op == op::comm_wait) return Wait(node, running);
  for (size_t r = 0; r < ranks_.size(); ++r) HEDDLE_RETURN_IF_ERROR(RunAlone(node, r, running));
  return Done{};
}

Status World::RunAlone(NodeId node, size_t at, Running& running) const {
  const Step& step = steps_[node];
  slots_.Load(node, running.values[at], running.operands);
  try {
    if (step.local) {
      step.local->Run(ranks_[at], running.operands, running.results);
    } else {
      step.calls[step.calls.size() == 1 ? 0 : at].Run(running.operands, running.results);
    }
  } catch (const std::exception& error) {
    return Describe(node, {&ranks_[at], 1}, {&running.operands, 1}, SaidByAten(error));
  }
  HEDDLE_CHECK(running.results.size() == slots_.result_count(node),
               PrintNode(module_, graph(), node));
  running.operands.clear();
  slots_.Store(node, running.results, running.values[at]);
  return Done{};
}

Status World::Start(NodeId node, const Group& group, std::unique_ptr<Pending>& pending,
                    Running& running) const {
  std::vector<Tensors> operands(group.at.size());
  for (size_t m = 0; m < group.at.size(); ++m)
    slots_.Load(node, running.values[group.at[m]], operands[m]);
  try {
    steps_[node].collective->CheckSizes(operands);
    std::vector<Tensors> sends;
    for (size_t m = 0; m < group.at.size(); ++m)
      sends.push_back(steps_[node].collective->Pack(operands[m], group.ranks[m]));
    pending = transport_->Start(node, communicators_.of(node), *steps_[node].collective,
                                group.ranks, std::move(sends));
    if (transport_->finishes_at_once()) StoreResults(node, group, pending->Finish(), node, running);
  } catch (const std::exception& error) {
    return Describe(node, group.ranks, operands, SaidByAten(error));
  }
  return Done{};
}

// Unpacks what the collective `node` received into the slots of node `into`: its own, or those of its wait.
void World::StoreResults(NodeId node, const Group& group, std::vector<Tensors> received,
                         NodeId into, Running& running) const {
  const Step& step = steps_[node];
  Tensors shared;
  for (size_t m = 0; m < group.at.size(); ++m) {
    bool reuse = m > 0 && step.share && step.collective->equal_results();
    Tensors results = shared;
    if (!reuse) {
      Tensors operands;
      slots_.Load(node, running.values[group.at[m]], operands);
      results = step.collective->Unpack(received[m], operands, group.ranks[m]);
    }
    if (m == 0 && step.share) shared = results;
    slots_.Store(into, results, running.values[group.at[m]]);
  }
}

Status World::Wait(NodeId node, Running& running) const {
  NodeId start = graph()[graph().operands(node)[0]].producer;
  // What the caller of the graph had launched is there, too.
  if (!start || transport_->finishes_at_once()) {
    // It was over when it started.
    for (Tensors& values : running.values) {
      slots_.Load(node, values, running.operands);
      running.results = running.operands;
      slots_.Store(node, running.results, values);
    }
    running.operands.clear();
    return Done{};
  }
  const std::vector<Group>& groups = groups_[communicators_.of(start).index()];
  size_t launch = steps_[start].first_pending;
  for (const Group& group : groups) {
    try {
      StoreResults(start, group, running.pending[launch++]->Finish(), node, running);
    } catch (const std::exception& error) {
      return Describe(start, group.ranks, {}, SaidByAten(error));
    }
  }
  return Done{};
}

std::string World::Where(std::span<const int64_t> ranks) const {
  if (module_.mesh.ranks() == 1) return "";
  std::string where = ranks.size() == 1 ? "rank " : "ranks ";
  for (int64_t rank : ranks) where += fmt::format("{}{}", rank == ranks[0] ? "" : ", ", rank);
  return where + ": ";
}

Failure World::Describe(NodeId node, std::span<const int64_t> ranks,
                        std::span<const Tensors> operands, std::string_view what) const {
  std::string lines;
  bool alone = module_.mesh.ranks() == 1;
  for (size_t m = 0; m < operands.size(); ++m)
    lines += OperandLines(operands[m], alone ? "" : fmt::format(" of rank {}", ranks[m]));
  return RunFault(module_, graph(), node, Where(ranks), what, lines);
}

}  // namespace heddle
