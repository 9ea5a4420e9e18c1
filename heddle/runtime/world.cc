#include "heddle/runtime/world.h"

#include <algorithm>
#include <barrier>
#include <numeric>
#include <thread>

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include "heddle/aten/dtype.h"
#include "heddle/aten/said.h"
#include "heddle/ir/text/print.h"
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

// Straight to the kernels: there is no graph of autograd to record, and nobody asks which tensor is a view of which.
class KernelsOnly {
  at::NoGradGuard no_grad_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
};

}  // namespace

// What one run needs besides the program.
struct World::Running {
  std::vector<Tensors> values;
  // By Launch::first_pending, and the groups from there on.
  std::vector<std::unique_ptr<Pending>> pending;
};

// Room that a thread keeps from node to node.
struct World::Scratch {
  std::vector<const at::Tensor*> operands;
  torch::jit::Stack stack;
  Tensors results;
};

struct World::Failed {
  NodeId node;
  size_t at = 0;
  Status status;
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
  world.device_ = options.device;
  world.transport_ = options.transport;
  if (!world.transport_) {
    world.transport_ = std::make_shared<LockstepTransport>(options.reducer);
    world.ranks_.resize(static_cast<size_t>(module.mesh.ranks()));
    std::iota(world.ranks_.begin(), world.ranks_.end(), 0);
  }
  world.FindGroups();
  world.threads_ = std::clamp<size_t>(static_cast<size_t>(options.threads), 1, world.ranks_.size());
  for (NodeId id : graph.nodes()) HEDDLE_RETURN_IF_ERROR(world.CompileNode(id, options));
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

Status World::CompileNode(NodeId node, const WorldOptions& options) {
  using Kind = Step::Kind;
  OpId op = graph()[node].op;
  Step step;
  if (op == op::comm_wait) {
    step.kind = Kind::kWait;
  } else if (LocalCall::Runs(op)) {
    step = {Kind::kLocal, false, static_cast<uint32_t>(locals_.size())};
    locals_.emplace_back(module_.mesh, graph(), node, options.device);
  } else if (Collective::Is(op)) {
    if (graph().attrs(node).Find("sizes") != nullptr)
      return Error(Diag::kRunFault,
                   "`%{}` exchanges parts of unequal sizes; such graphs can be simulated, not run",
                   graph().name(graph()[node].first_result));
    step = {Kind::kCollective, false, static_cast<uint32_t>(launches_.size())};
    launches_.push_back({Collective(module_.mesh, graph(), node),
                         options.share_results && !written_over_[node], pending_count_});
    pending_count_ += groups_[communicators_.of(node).index()].size();
  } else {
    bool random = graph().op(node).effect() == Effect::kRandom;
    step = {random ? Kind::kTurn : Kind::kCall, HasSymbols(graph().attrs(node)),
            static_cast<uint32_t>(calls_.size())};
    for (int64_t rank : std::span(ranks_).first(step.by_rank ? ranks_.size() : 1)) {
      HEDDLE_TRY(AtenCall call, AtenCall::Bind(module_, graph(), node, options.device,
                                               SizesAt(module_.mesh, rank)));
      calls_.push_back(std::move(call));
    }
  }
  steps_.Add(step);
  return Done{};
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
  std::vector<const void*> written;
  for (const Tensors& inputs : inputs_by_rank) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!updated_[i] || inputs[i].numel() == 0) continue;
      written.push_back(inputs[i].storage().data());
    }
  }
  std::ranges::sort(written);
  HEDDLE_CHECK(std::ranges::adjacent_find(written) == written.end(),
               "two ranks share the tensor of an input that is updated");
}

Result<std::vector<std::vector<at::Tensor>>> World::Run(
    std::span<const std::vector<at::Tensor>> inputs_by_rank, const Observer& observer) const {
  HEDDLE_RETURN_IF_ERROR(CheckInputs(inputs_by_rank));
  Running running;
  running.pending.resize(pending_count_);
  for (const Tensors& inputs : inputs_by_rank) running.values.push_back(slots_.Start(inputs));
  // Those who look at values see them behind every node.
  HEDDLE_RETURN_IF_ERROR(threads_ == 1 || observer ? RunInTurn(running, observer)
                                                   : RunOnThreads(running));
  std::vector<Tensors> outputs;
  for (const Tensors& values : running.values) outputs.push_back(slots_.Outputs(values));
  return outputs;
}

Result<std::vector<at::Tensor>> World::RunAlone(const std::vector<at::Tensor>& inputs) const {
  HEDDLE_TRY(std::vector<std::vector<at::Tensor>> outputs, Run({&inputs, 1}));
  return std::move(outputs[0]);
}

Status World::RunInTurn(Running& running, const Observer& observer) const {
  KernelsOnly kernels_only;
  Scratch scratch;
  for (NodeId id : graph().nodes()) {
    if (steps_[id].kind == Step::Kind::kTurn || RunsAlone(id)) {
      for (size_t r = 0; r < ranks_.size(); ++r)
        HEDDLE_RETURN_IF_ERROR(RunAlone(id, r, running.values[r], scratch));
    } else {
      HEDDLE_RETURN_IF_ERROR(RunTogether(id, running));
    }
    if (observer) observer(id, running.values);
    for (Tensors& values : running.values) slots_.Release(id, values);
  }
  return Done{};
}

// Threads meet before and behind every node that is not for each rank alone; the first of them runs it. Of several failures the one
// counts that ranks in turn would have had.
Status World::RunOnThreads(Running& running) const {
  std::barrier barrier(static_cast<ptrdiff_t>(threads_));
  std::vector<std::optional<Failed>> failed(threads_);
  std::vector<std::thread> threads;
  for (size_t t = 1; t < threads_; ++t) {
    threads.emplace_back([&, t] {
      // A new thread begins with as many threads of its own as there are cores.
      at::init_num_threads();
      RunThread(t, running, barrier, failed);
    });
  }
  RunThread(0, running, barrier, failed);
  for (std::thread& thread : threads) thread.join();
  std::erase_if(failed, [](const std::optional<Failed>& f) { return !f; });
  if (failed.empty()) return Done{};
  return std::ranges::min(failed, {},
                          [](const std::optional<Failed>& f) { return std::pair(f->node, f->at); })
      ->status;
}

template <typename Barrier>
void World::RunThread(size_t thread, Running& running, Barrier& barrier,
                      std::vector<std::optional<Failed>>& failed) const {
  KernelsOnly kernels_only;
  Scratch scratch;
  auto ok = [&](NodeId node, size_t at, Status status) {
    if (!status.ok()) failed[thread] = Failed{node, at, std::move(status)};
    return !failed[thread].has_value();
  };
  for (NodeId id : graph().nodes()) {
    if (RunsAlone(id)) {
      for (size_t r = thread; r < ranks_.size() && !failed[thread]; r += threads_) {
        if (ok(id, r, RunAlone(id, r, running.values[r], scratch)))
          slots_.Release(id, running.values[r]);
      }
      continue;
    }
    barrier.arrive_and_wait();
    // All threads are here: nobody writes, and all read the same.
    if (std::ranges::any_of(failed, [](const auto& f) { return f.has_value(); })) return;
    barrier.arrive_and_wait();
    if (thread == 0) {
      if (steps_[id].kind == Step::Kind::kTurn) {
        for (size_t r = 0; r < ranks_.size() && !failed[0]; ++r)
          ok(id, r, RunAlone(id, r, running.values[r], scratch));
      } else {
        ok(id, 0, RunTogether(id, running));
      }
      for (Tensors& values : running.values) slots_.Release(id, values);
    }
    barrier.arrive_and_wait();
  }
}

bool World::RunsAlone(NodeId node) const {
  switch (steps_[node].kind) {
    case Step::Kind::kCall:
    case Step::Kind::kLocal: return true;
    case Step::Kind::kWait: return IsOver(node);
    case Step::Kind::kTurn:
    case Step::Kind::kCollective: break;
  }
  return false;
}

// What the caller of the graph had launched is there, too.
bool World::IsOver(NodeId wait) const {
  return transport_->finishes_at_once() || !graph()[graph().operands(wait)[0]].producer;
}

Status World::RunTogether(NodeId node, Running& running) const {
  if (steps_[node].kind == Step::Kind::kWait) return Finish(node, running);
  size_t pending = launch(node).first_pending;
  for (const Group& group : groups_[communicators_.of(node).index()])
    HEDDLE_RETURN_IF_ERROR(Start(node, group, running.pending[pending++], running));
  return Done{};
}

Status World::RunAlone(NodeId node, size_t at, Tensors& values, Scratch& scratch) const {
  const Step& step = steps_[node];
  slots_.Load(node, values, scratch.operands);
  try {
    switch (step.kind) {
      case Step::Kind::kLocal:
        locals_[step.first].Run(ranks_[at], scratch.operands, scratch.results);
        break;
      case Step::Kind::kWait:
        scratch.results.clear();
        for (const at::Tensor* tensor : scratch.operands) scratch.results.push_back(*tensor);
        break;
      default:
        calls_[step.first + (step.by_rank ? at : 0)].Run(scratch.operands, scratch.stack,
                                                         scratch.results);
    }
  } catch (const std::exception& error) {
    Tensors operands = slots_.Operands(node, values);
    return Describe(node, {&ranks_[at], 1}, {&operands, 1}, SaidByAten(error));
  }
  HEDDLE_CHECK(scratch.results.size() == slots_.result_count(node),
               PrintNode(module_, graph(), node));
  slots_.Store(node, scratch.results, values);
  return Done{};
}

Status World::Start(NodeId node, const Group& group, std::unique_ptr<Pending>& pending,
                    Running& running) const {
  const Collective& collective = launch(node).collective;
  std::vector<Tensors> operands;
  for (size_t at : group.at) operands.push_back(slots_.Operands(node, running.values[at]));
  try {
    collective.CheckSizes(operands);
    std::vector<Tensors> sends;
    std::vector<Shares> shares;
    for (size_t m = 0; m < group.at.size(); ++m) {
      shares.push_back(collective.SharesOf(operands[m]));
      sends.push_back(collective.Pack(operands[m], group.ranks[m]));
    }
    pending = transport_->Start(node, communicators_.of(node), collective, group.ranks,
                                std::move(sends), shares);
    if (transport_->finishes_at_once()) StoreResults(node, group, pending->Finish(), node, running);
  } catch (const std::exception& error) {
    return Describe(node, group.ranks, operands, SaidByAten(error));
  }
  return Done{};
}

// Unpacks what the collective `node` received into the slots of node `into`: its own, or those of its wait.
void World::StoreResults(NodeId node, const Group& group, std::vector<Tensors> received,
                         NodeId into, Running& running) const {
  const Launch& launched = launch(node);
  Tensors shared;
  for (size_t m = 0; m < group.at.size(); ++m) {
    bool reuse = m > 0 && launched.share && launched.collective.equal_results();
    Tensors results = shared;
    if (!reuse) {
      Tensors operands = slots_.Operands(node, running.values[group.at[m]]);
      results = launched.collective.Unpack(received[m], operands, group.ranks[m], /*take=*/m == 0);
    }
    if (m == 0 && launched.share) shared = results;
    slots_.Store(into, results, running.values[group.at[m]]);
  }
}

Status World::Finish(NodeId wait, Running& running) const {
  NodeId start = graph()[graph().operands(wait)[0]].producer;
  size_t pending = launch(start).first_pending;
  for (const Group& group : groups_[communicators_.of(start).index()]) {
    try {
      StoreResults(start, group, running.pending[pending++]->Finish(), wait, running);
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
