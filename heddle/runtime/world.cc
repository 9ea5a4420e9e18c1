#include "heddle/runtime/world.h"

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

Result<LockstepWorld> LockstepWorld::Compile(const Module& module, const Graph& graph,
                                             c10::Device device) {
  if (module.view != View::kLocal && module.mesh.ranks() > 1) {
    return Error(Diag::kRunFault, "@{} is global, on {} ranks; only local graphs run on ranks",
                 graph.name(), module.mesh.ranks());
  }
  LockstepWorld world(Module{module.view, module.mesh, {graph}});
  for (NodeId id : graph.nodes()) {
    HEDDLE_TRY(Step step, world.CompileNode(id, device));
    world.steps_.Add(std::move(step));
  }
  world.alone_ = Groups(module.mesh, Axes());
  return world;
}

Result<LockstepWorld::Step> LockstepWorld::CompileNode(NodeId node, c10::Device device) const {
  Step step;
  if (CommCall::Runs(graph()[node].op)) {
    step.comm.emplace(module_.mesh, graph(), node, device);
    return step;
  }
  int64_t calls = HasSymbols(graph().attrs(node)) ? ranks() : 1;
  for (int64_t rank = 0; rank < calls; ++rank) {
    HEDDLE_TRY(AtenCall call,
               AtenCall::Bind(module_, graph(), node, device, SizesAt(module_.mesh, rank)));
    step.calls.push_back(std::move(call));
  }
  return step;
}

Status LockstepWorld::CheckInputs(std::span<const Tensors> inputs_by_rank) const {
  HEDDLE_CHECK(static_cast<int64_t>(inputs_by_rank.size()) == ranks(),
               "a world was run with inputs of another number of ranks than it has");
  for (int64_t rank = 0; rank < ranks(); ++rank) {
    const Tensors& inputs = inputs_by_rank[static_cast<size_t>(rank)];
    HEDDLE_CHECK(inputs.size() == graph().inputs().size(),
                 "a world was run with another number of inputs than its graph has");
    for (size_t i = 0; i < inputs.size(); ++i) {
      ValueId value = graph().inputs()[i].value;
      TypeId type = graph().type(value);
      if (Fits(inputs[i], graph(), type, module_.mesh, rank)) continue;
      return Error(Diag::kRunFault, "{}input `%{}` is {}, the graph has {}", Where({&rank, 1}),
                   graph().name(value), TensorText(inputs[i]), PrintType(module_, graph(), type));
    }
  }
  return Done{};
}

Result<std::vector<std::vector<at::Tensor>>> LockstepWorld::Run(
    std::span<const std::vector<at::Tensor>> inputs_by_rank) const {
  HEDDLE_RETURN_IF_ERROR(CheckInputs(inputs_by_rank));
  at::NoGradGuard no_grad;
  std::vector<Tensors> values;
  for (const Tensors& inputs : inputs_by_rank) values.push_back(slots_.Start(inputs));
  Buffers buffers{std::vector<Tensors>(values.size()), std::vector<Tensors>(values.size())};
  for (NodeId id : graph().nodes()) {
    for (const std::vector<int64_t>& group : steps_[id].comm ? steps_[id].comm->groups() : alone_)
      HEDDLE_RETURN_IF_ERROR(RunNode(id, group, values, buffers));
  }
  std::vector<Tensors> outputs;
  for (const Tensors& rank_values : values) outputs.push_back(slots_.Outputs(rank_values));
  return outputs;
}

Result<std::vector<at::Tensor>> LockstepWorld::RunAlone(
    const std::vector<at::Tensor>& inputs) const {
  HEDDLE_TRY(std::vector<std::vector<at::Tensor>> outputs, Run({&inputs, 1}));
  return std::move(outputs[0]);
}

Status LockstepWorld::RunNode(NodeId node, std::span<const int64_t> ranks,
                              std::span<Tensors> values_by_rank, Buffers& buffers) const {
  const Step& step = steps_[node];
  std::span<Tensors> operands(buffers.operands.data(), ranks.size());
  std::span<Tensors> results(buffers.results.data(), ranks.size());
  auto values = [&](size_t m) -> Tensors& { return values_by_rank[static_cast<size_t>(ranks[m])]; };
  for (size_t m = 0; m < ranks.size(); ++m) slots_.Load(node, values(m), operands[m]);
  try {
    if (step.comm) {
      step.comm->Run(ranks, operands, results);
    } else {
      size_t call = step.calls.size() == 1 ? 0 : static_cast<size_t>(ranks[0]);
      step.calls[call].Run(operands[0], results[0]);
    }
  } catch (const std::exception& error) {
    return Describe(node, ranks, operands, SaidByAten(error));
  }
  for (size_t m = 0; m < ranks.size(); ++m) {
    HEDDLE_CHECK(results[m].size() == slots_.result_count(node), PrintNode(module_, graph(), node));
    operands[m].clear();
    slots_.Store(node, results[m], values(m));
  }
  return Done{};
}

std::string LockstepWorld::Where(std::span<const int64_t> at) const {
  if (ranks() == 1) return "";
  std::string where = at.size() == 1 ? "rank " : "ranks ";
  for (int64_t rank : at) where += fmt::format("{}{}", rank == at[0] ? "" : ", ", rank);
  return where + ": ";
}

Failure LockstepWorld::Describe(NodeId node, std::span<const int64_t> at,
                                std::span<const Tensors> operands, std::string_view what) const {
  std::string lines;
  for (size_t m = 0; m < at.size(); ++m)
    lines += OperandLines(operands[m], ranks() == 1 ? "" : fmt::format(" of rank {}", at[m]));
  return RunFault(module_, graph(), node, Where(at), what, lines);
}

}  // namespace heddle
