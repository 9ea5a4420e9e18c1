#include "test/parallel/op_run.h"

#include <cmath>

#include <gtest/gtest.h>

#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_as_real.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/run/aten/dtype.h"
#include "heddle/run/runtime/fault.h"
#include "heddle/run/runtime/shards.h"
#include "heddle/run/runtime/test/run_on_whole.h"

namespace heddle {
namespace {

double RandomNumber(DType dtype, const ExampleInput& note, int64_t at, int64_t count,
                    std::mt19937& random) {
  double unit = static_cast<double>(random()) / 4294967296.0;
  bool is_signed = c10::isSignedType(run::ToScalarType(dtype));
  double sign = random() % 2 == 0 || !is_signed ? 1 : -1;
  switch (note.data) {
    case ExampleInput::Data::kBelow: return std::floor(unit * static_cast<double>(note.limit));
    case ExampleInput::Data::kRising: return static_cast<double>(note.limit * (at + 1) / count);
    case ExampleInput::Data::kProbability: return unit;
    case ExampleInput::Data::kAny: break;
  }
  if (dtype == DType::kBool) return unit < 0.5 ? 0 : 1;
  // Avoids zeros, because some ops divide.
  if (IsInteger(dtype)) return sign * (1 + std::floor(unit * 5));
  // Multiples of 1/8, so that sums over all ranks fit the eight bits of bf16.
  if (dtype == DType::kBF16) return sign * (2 + std::floor(unit * 12)) / 8;
  return sign * (0.25 + unit * 1.5);
}

at::Tensor RandomReal(const Type& type, const ExampleInput& note, std::mt19937& random) {
  int64_t count = 1;
  for (Dim size : type.dims) count *= size;
  std::vector<double> numbers;
  for (int64_t i = 0; i < count; ++i)
    numbers.push_back(RandomNumber(type.dtype, note, i, count, random));
  at::Tensor out = at::from_blob(numbers.data(), type.dims, at::kDouble).clone();
  return IsComplex(type.dtype) ? out : out.to(run::ToScalarType(type.dtype));
}

at::Tensor RandomTensor(const Type& type, const ExampleInput& note, std::mt19937& random) {
  at::Tensor real = RandomReal(type, note, random);
  if (!IsComplex(type.dtype)) return real;
  return at::complex(real, RandomReal(type, note, random)).to(run::ToScalarType(type.dtype));
}

const compile::Pipeline& LocalPipeline() {
  static const compile::Pipeline pipeline =
      *compile::ParsePipeline("insert-redistributions, lower, localize", compile::Passes());
  return pipeline;
}

std::vector<double> Numbers(const at::Tensor& tensor) {
  at::Tensor real = tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor;
  at::Tensor flat = real.to(at::kCPU, at::kDouble).contiguous();
  return {flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel()};
}

int CountCollectives(const Graph& graph) {
  int count = 0;
  for (NodeId id : graph.nodes()) count += graph[id].op == op::comm_wait;
  return count;
}

// Whether each rank has a tensor of the size of its shard.
bool HaveSizesOf(const Module& local, size_t o, const std::vector<std::vector<at::Tensor>>& by_rank,
                 const at::Tensor& whole) {
  const Graph& graph = local.graphs[0];
  const Placement& placement = graph.placements()[graph.outputs()[o].global.placement];
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    at::Tensor part = run::ShardOf(whole, placement, local.mesh, static_cast<int64_t>(rank));
    if (part.sizes() != by_rank[rank][o].sizes()) return false;
  }
  return true;
}

}  // namespace

bool AreClose(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  std::vector<double> x = Numbers(a);
  std::vector<double> y = Numbers(b);
  double most = 0;
  for (double number : y) most = std::isfinite(number) ? std::max(most, std::abs(number)) : most;
  for (size_t i = 0; i < x.size(); ++i) {
    bool same = x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]));
    if (!same && !(std::abs(x[i] - y[i]) <= tolerance * most)) return false;
  }
  return true;
}

Result<OpRun> OpRun::Make(OpCall call, uint32_t seed, c10::Device device) {
  OpRun run(std::move(call), seed, device);
  Module module = ModuleOf(run.call_, View::kLocal, Mesh(), {}, {});
  HEDDLE_TRY(run.whole_, run::RankProgram::Compile(module, module.graphs[0], {.device = device}));
  std::vector<at::Tensor> inputs;
  for (size_t i = 0; i < run.call_.operands.size(); ++i) {
    if (!run.call_.operands[i].is_none()) inputs.push_back(run.MakeOperand(i, {}, Mesh()).whole);
  }
  HEDDLE_RETURN_IF_ERROR(run.RunWhole(inputs));
  return run;
}

Result<std::vector<at::Tensor>> OpRun::RunWhole(const std::vector<at::Tensor>& inputs) const {
  HEDDLE_TRY(auto outputs, whole_->Run({&inputs, 1}));
  return std::move(outputs[0]);
}

OpRun::Operand OpRun::MakeOperand(size_t i, const Placement& placement, const Mesh& mesh) const {
  Axes sums;
  for (const Partial& partial : placement.partials) sums.Add(partial.axis);
  Placement splits{placement.splits, {}};
  Operand out;
  out.parts.resize(static_cast<size_t>(mesh.ranks()));
  // Ranks with equal coordinates along the axes of the sum have shards of the same summand.
  std::map<std::vector<int64_t>, at::Tensor> summands;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    std::vector<int64_t> place;
    for (AxisId axis : sums) place.push_back(mesh.Coordinate(rank, axis));
    auto [at, added] = summands.try_emplace(place);
    if (added) {
      at->second = RandomTensor(call_.operands[i], call_.data[i], random_).to(device_);
      // Avoids sums of zero, because some ops divide.
      if (!sums.empty() && IsInteger(call_.operands[i].dtype)) at->second = at::abs(at->second);
      out.whole = out.whole.defined() ? at::add(out.whole, at->second) : at->second;
    }
    out.parts[static_cast<size_t>(rank)] = run::ShardOf(at->second, splits, mesh, rank);
    // An update takes over the storage of its operands.
    if (call_.def().effect() == Effect::kUpdate)
      out.parts[static_cast<size_t>(rank)] = out.parts[static_cast<size_t>(rank)].clone();
  }
  if (call_.def().effect() == Effect::kUpdate) out.whole = out.whole.clone();
  return out;
}

OpRun::Outcome OpRun::Check(Module global, const std::vector<Placement>& operands, double tolerance,
                            size_t compared) const {
  // Writes no reproducers into the current directory.
  compile::ManagerOptions options{
      .dump_dir = "", .stop_after = -1, .reproducer_dir = testing::TempDir()};
  Module local = std::move(global);
  Result<compile::RunReport> report = compile::RunPipeline(local, LocalPipeline(), options);
  if (!report.ok()) return {Format(report.diagnostics())};
  Outcome outcome{"", CountCollectives(local.graphs[0])};
  auto fail = [&](const std::string& what) {
    outcome.error = what + "\n" + Print(local);
    return outcome;
  };
  Result<run::RankProgram> program =
      run::RankProgram::Compile(local, local.graphs[0], {.device = device_});
  if (!program.ok()) return fail(Format(program.diagnostics()));
  std::vector<at::Tensor> inputs;
  std::vector<std::vector<at::Tensor>> by_rank(static_cast<size_t>(local.mesh.ranks()));
  for (size_t i = 0; i < call_.operands.size(); ++i) {
    if (call_.operands[i].is_none()) continue;
    Operand operand = MakeOperand(i, operands[i], local.mesh);
    inputs.push_back(operand.whole);
    for (size_t rank = 0; rank < by_rank.size(); ++rank)
      by_rank[rank].push_back(operand.parts[rank]);
  }
  Result<std::vector<at::Tensor>> expected = RunWhole(inputs);
  if (!expected.ok()) return fail("whole: " + Format(expected.diagnostics()));
  Result<std::vector<std::vector<at::Tensor>>> parts = program->Run(by_rank);
  if (!parts.ok()) return fail(Format(parts.diagnostics()));
  for (size_t o = 0; o < std::min(compared, expected->size()); ++o) {
    if (std::isinf(tolerance)) {
      if (!HaveSizesOf(local, o, *parts, (*expected)[o])) return fail("sizes differ");
      continue;
    }
    Result<at::Tensor> got = run::AssembleOutput(local, o, *parts);
    if (!got.ok()) return fail(Format(got.diagnostics()));
    if (!AreClose(*got, (*expected)[o], tolerance))
      return fail(fmt::format("output {} differs from the whole", o));
  }
  return outcome;
}

}  // namespace heddle
