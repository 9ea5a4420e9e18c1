#include "heddle/run/runtime/rank_program.h"

#include <algorithm>
#include <barrier>
#include <numeric>
#include <thread>

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>

#include "heddle/core/ir/text/print.h"
#include "heddle/run/aten/attr.h"
#include "heddle/run/aten/dtype.h"
#include "heddle/run/aten/error_message.h"
#include "heddle/run/runtime/aten_backend.h"
#include "heddle/run/runtime/comm_backend.h"
#include "heddle/run/runtime/fault.h"
#include "heddle/run/runtime/local_backend.h"

namespace heddle::run {
namespace {

// Whether a tensor has the element type and the sizes of `type` on this rank. A named symbol may
// have any size up to its bound.
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

// Calls kernels directly, without autograd and without tracking of views.
class KernelsOnly {
  at::NoGradGuard no_grad_;
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
};

}  // namespace

struct RankProgram::Failed {
  NodeId node;
  size_t at = 0;
  Status status;
};

Result<RankProgram> RankProgram::Compile(const Module& module, const Graph& graph,
                                         const RankProgramOptions& options) {
  if (module.view != View::kLocal && module.mesh.ranks() > 1) {
    return Error(Diag::kRunFault,
                 "@{} is global, on {} ranks, but only local graphs can run on ranks", graph.name(),
                 module.mesh.ranks());
  }
  std::vector<int64_t> ranks = options.ranks;
  std::shared_ptr<Transport> transport = options.transport;
  if (!transport) {
    transport = std::make_shared<LockstepTransport>(options.reducer);
    if (ranks.empty()) {
      ranks.resize(static_cast<size_t>(module.mesh.ranks()));
      std::iota(ranks.begin(), ranks.end(), 0);
    }
  }
  ArrangedKernels kernels =
      options.kernels ? options.kernels(graph) : ArrangedKernels{graph, nullptr};
  RankProgram program(
      std::make_unique<const RunPlan>(Module{module.view, module.mesh, {kernels.graph}},
                                      Liveness(kernels.graph), std::move(ranks), options.device));
  const RunPlan& plan = *program.plan_;
  program.spans_processes_ = options.transport != nullptr;
  program.threads_ =
      std::clamp<size_t>(static_cast<size_t>(options.threads), 1, plan.ranks().size());
  program.launched_ = options.launched;
  if (kernels.backend) program.backends_.push_back(kernels.backend(plan));
  size_t own = program.backends_.size();
  auto comm =
      std::make_unique<CommBackend>(plan, transport, options.transfers, options.share_results);
  const CommBackend& launches = *comm;
  program.backends_.push_back(std::move(comm));
  program.backends_.push_back(std::make_unique<LocalBackend>(plan));
  program.backends_.push_back(std::make_unique<AtenBackend>(plan));
  HEDDLE_TRY(program.steps_, program.CompileSteps(program.backends_));
  if (program.steps_.size() < plan.graph().node_count()) {
    HEDDLE_TRY(program.single_steps_,
               program.CompileSteps(std::span(program.backends_).subspan(own)));
  }
  program.launch_count_ = launches.launch_count();
  return program;
}

Result<std::vector<RankProgram::Placed>> RankProgram::CompileSteps(
    std::span<const std::unique_ptr<Backend>> backends) {
  std::vector<Placed> steps;
  for (size_t next = 0; next < graph().node_count();) {
    CompiledNodes compiled;
    for (size_t b = 0; b < backends.size() && !compiled.step; ++b) {
      HEDDLE_TRY(compiled, backends[b]->Compile(NodeId(next)));
    }
    HEDDLE_CHECK(compiled.step != nullptr, PrintNode(module(), graph(), NodeId(next)));
    steps.push_back({NodeId(next), NodeId(next + compiled.nodes), std::move(compiled.step)});
    next += compiled.nodes;
  }
  return steps;
}

Status RankProgram::CheckInputs(std::span<const Tensors> inputs_by_rank) const {
  HEDDLE_CHECK(inputs_by_rank.size() == ranks().size(),
               "the number of input lists differs from the number of ranks");
  for (size_t r = 0; r < ranks().size(); ++r) {
    const Tensors& inputs = inputs_by_rank[r];
    HEDDLE_CHECK(inputs.size() == graph().inputs().size(),
                 "the number of inputs differs from that of the graph");
    for (size_t i = 0; i < inputs.size(); ++i) {
      ValueId value = graph().inputs()[i].value;
      TypeId type = graph().type(value);
      if (Fits(inputs[i], graph(), type, module().mesh, ranks()[r])) continue;
      return Error(Diag::kRunFault, "{}input `%{}` is {}, but the graph expects {}",
                   plan_->Where(ranks().subspan(r, 1)), graph().name(value), TensorText(inputs[i]),
                   PrintType(module(), graph(), type));
    }
  }
  CheckUpdatedInputs(inputs_by_rank);
  return Done{};
}

// If two ranks shared a tensor that is updated, it would be updated twice.
void RankProgram::CheckUpdatedInputs(std::span<const Tensors> inputs_by_rank) const {
  std::vector<const void*> written;
  for (const Tensors& inputs : inputs_by_rank) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!updates(i) || inputs[i].numel() == 0) continue;
      written.push_back(inputs[i].storage().data());
    }
  }
  std::ranges::sort(written);
  HEDDLE_CHECK(std::ranges::adjacent_find(written) == written.end(),
               "two ranks share the tensor of an input that is updated");
}

Result<std::vector<std::vector<at::Tensor>>> RankProgram::Run(
    std::span<const std::vector<at::Tensor>> inputs_by_rank, const Observer& observer) const {
  HEDDLE_RETURN_IF_ERROR(CheckInputs(inputs_by_rank));
  Running running;
  running.pending.resize(launch_count_);
  for (const Tensors& inputs : inputs_by_rank) running.values.push_back(slots().Start(inputs));
  // Observers must see the values after every node.
  HEDDLE_RETURN_IF_ERROR(threads_ == 1 || observer ? RunInTurn(running, observer)
                                                   : RunOnThreads(running));
  std::vector<Tensors> outputs;
  for (const Tensors& values : running.values) outputs.push_back(slots().Outputs(values));
  return outputs;
}

Result<std::vector<at::Tensor>> RankProgram::RunAlone(const std::vector<at::Tensor>& inputs) const {
  HEDDLE_TRY(std::vector<std::vector<at::Tensor>> outputs, Run({&inputs, 1}));
  return std::move(outputs[0]);
}

Status RankProgram::RunInTurn(Running& running, const Observer& observer) const {
  KernelsOnly kernels_only;
  Scratch scratch;
  if (launched_) scratch.launched = &launched_;
  for (const Placed& placed : observer && !single_steps_.empty() ? single_steps_ : steps_) {
    if (placed.step->turn() == Step::Turn::kTogether) {
      HEDDLE_RETURN_IF_ERROR(placed.step->RunTogether(running));
    } else {
      for (size_t r = 0; r < ranks().size(); ++r)
        HEDDLE_RETURN_IF_ERROR(RunStep(placed, r, running.values[r], scratch));
    }
    if (launched_) launched_(placed.first);
    if (observer) observer(placed.first, running.values);
    for (Tensors& values : running.values) Release(placed, values);
  }
  return Done{};
}

// Threads synchronize before and after every step that is not kAlone; the first thread runs it. If
// several ranks fail, reports the failure that a run in turn would report.
Status RankProgram::RunOnThreads(Running& running) const {
  std::barrier barrier(static_cast<ptrdiff_t>(threads_));
  std::vector<std::optional<Failed>> failed(threads_);
  std::vector<std::thread> threads;
  for (size_t t = 1; t < threads_; ++t) {
    threads.emplace_back([&, t] {
      // A new thread starts with one ATen thread per core.
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
void RankProgram::RunThread(size_t thread, Running& running, Barrier& barrier,
                            std::vector<std::optional<Failed>>& failed) const {
  KernelsOnly kernels_only;
  Scratch scratch;
  auto ok = [&](NodeId node, size_t at, Status status) {
    if (!status.ok()) failed[thread] = Failed{node, at, std::move(status)};
    return !failed[thread].has_value();
  };
  for (const Placed& placed : steps_) {
    NodeId id = placed.first;
    if (placed.step->turn() == Step::Turn::kAlone) {
      for (size_t r = thread; r < ranks().size() && !failed[thread]; r += threads_) {
        if (ok(id, r, RunStep(placed, r, running.values[r], scratch)))
          Release(placed, running.values[r]);
      }
      continue;
    }
    barrier.arrive_and_wait();
    // All threads are between the barriers: none writes, so all read the same.
    if (std::ranges::any_of(failed, [](const auto& f) { return f.has_value(); })) return;
    barrier.arrive_and_wait();
    if (thread == 0) {
      if (placed.step->turn() == Step::Turn::kInTurn) {
        for (size_t r = 0; r < ranks().size() && !failed[0]; ++r)
          ok(id, r, RunStep(placed, r, running.values[r], scratch));
      } else {
        ok(id, 0, placed.step->RunTogether(running));
      }
      for (Tensors& values : running.values) Release(placed, values);
    }
    barrier.arrive_and_wait();
  }
}

void RankProgram::Release(const Placed& placed, Tensors& values) const {
  for (NodeId node = placed.first; node < placed.end; node = NodeId(node.index() + 1))
    slots().Release(node, values);
}

Status RankProgram::RunStep(const Placed& placed, size_t at, Tensors& values,
                            Scratch& scratch) const {
  try {
    placed.step->Run(at, values, scratch);
  } catch (const std::exception& error) {
    Tensors operands = slots().Operands(placed.first, values);
    return plan_->Fault(placed.first, ranks().subspan(at, 1), {&operands, 1},
                        AtenErrorMessage(error));
  }
  return Done{};
}

}  // namespace heddle::run
