// Splits every op that has factors in every way that they allow, and compares the result on ranks
// with the whole op on one rank.
#include <algorithm>
#include <iostream>
#include <numeric>

#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include "heddle/compile/shard/placing.h"
#include "heddle/core/ir/text/print.h"
#include "test/parallel/op_run.h"
#include "test/parallel/op_split.h"

namespace heddle {
namespace {

const std::vector<Mesh>& Meshes() {
  static const std::vector<Mesh> meshes = {Mesh({{"a", 2}}), Mesh({{"a", 4}}),
                                           Mesh({{"a", 2}, {"b", 2}}), Mesh({{"a", 2}, {"b", 3}}),
                                           Mesh({{"a", 2}, {"b", 2}, {"c", 2}})};
  return meshes;
}

// Ops that run only on GPUs, in the element types of their examples. Skipped without a GPU.
struct GpuOp {
  OpId op;
  double tolerance;
  // Without dropout, the state of dropout, which follows these results, is uninitialized memory.
  size_t compared = SIZE_MAX;
};
constexpr GpuOp kOnGpuOnly[] = {
    {op::bmm_dtype, 1e-2},
    {op::mm_dtype, 1e-2},
    {op::_fused_rms_norm_backward, 1e-2},
    {op::_scaled_dot_product_cudnn_attention, 3e-2, 2},
    {op::_scaled_dot_product_cudnn_attention_backward, 3e-2},
    {op::_scaled_dot_product_efficient_attention, 3e-2, 2},
    {op::_scaled_dot_product_efficient_attention_backward, 3e-2},
    {op::_scaled_dot_product_flash_attention, 3e-2, 2},
    {op::_scaled_dot_product_flash_attention_backward, 3e-2},
};
const GpuOp* FindGpuOp(OpId op) {
  auto at = std::ranges::find(kOnGpuOnly, op, &GpuOp::op);
  return at == std::end(kOnGpuOnly) ? nullptr : at;
}

size_t ComparedResults(OpId op) {
  const GpuOp* gpu = FindGpuOp(op);
  return gpu == nullptr ? SIZE_MAX : gpu->compared;
}

// Implemented in Python, so libtorch lacks it.
constexpr OpId kInPythonOnly[] = {op::convert_element_type};

// Ops that ATen does not run in f64, or for which f64 would change the op. Compared with less
// precision.
struct Narrow {
  OpId op;
  double tolerance;
  std::string_view why;
};
constexpr Narrow kNarrow[] = {
    {op::view_dtype, 0, "its result depends on the width of an element"},
};

// ATen computes other bits for a part of a tensor: elements that do not fill a vector register use
// other instructions. A part of a document has fewer keys than the document.
constexpr OpId kRounded[] = {op::gelu,
                             op::gelu_backward,
                             op::heddle_document_attention,
                             op::heddle_document_attention_backward,
                             op::pow_Scalar,
                             op::pow_Tensor_Tensor,
                             op::sigmoid,
                             op::silu,
                             op::silu_backward};
constexpr OpId kRoundedIfComplex[] = {op::abs, op::mul_Tensor, op::sgn};

// Ops that return uninitialized memory.
constexpr OpId kUndefined[] = {op::empty_memory_format, op::empty_like, op::new_empty};

bool Contains(std::span<const OpId> ops, OpId op) {
  return std::ranges::find(ops, op) != ops.end();
}

// Silences ATen's warnings about the variance of empty parts.
class Quiet : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}

 private:
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

struct Counts {
  int64_t cases = 0;
  int64_t uneven = 0;
  int64_t empty = 0;
  int64_t sums = 0;
  int64_t moved = 0;
  int64_t refused = 0;
};

// Collects the failures of one op, and shows only the first few.
class Report {
 public:
  explicit Report(OpId op) : op_(op) {}
  ~Report() {
    if (count_ > kShown) ADD_FAILURE() << Ops()[op_].name() << ": " << count_ << " cases in all";
  }
  void Fail(const std::string& what, const std::string& why) {
    if (++count_ <= kShown) ADD_FAILURE() << what << "\n" << why;
  }

 private:
  static constexpr int kShown = 2;
  OpId op_;
  int count_ = 0;
};

// Data movement and elementwise arithmetic give the same bits for every split.
double ToleranceOf(const OpCall& call, const SplitTraits& traits) {
  // A rank draws other numbers than one device.
  if (Contains(kUndefined, call.op) || call.def().effect() == Effect::kRandom) return INFINITY;
  for (const Narrow& narrow : kNarrow) {
    if (narrow.op == call.op) return narrow.tolerance;
  }
  if (const GpuOp* gpu = FindGpuOp(call.op)) return gpu->tolerance;
  static constexpr std::string_view kExact[] = {"pointwise", "view", "move", "create", "index"};
  bool exact = std::ranges::find(kExact, call.def().family) != std::end(kExact);
  // Some results of wide operands are narrow, such as those of integers.
  bool narrow =
      std::ranges::any_of(call.results, [](const Type& type) { return type.dtype == DType::kF32; });
  if (!exact || !traits.kept) return narrow ? 1e-5 : 1e-6;
  bool complex =
      std::ranges::any_of(call.operands, [](const Type& t) { return IsComplex(t.dtype); });
  bool rounded = Contains(kRounded, call.op) || (complex && Contains(kRoundedIfComplex, call.op));
  return rounded ? 1e-14 : 0;
}

Result<compile::NodePlacing> Place(const OpCall& call, const std::vector<Placement>& operands,
                                   const std::vector<Placement>* wanted, const Mesh& mesh) {
  compile::PlacingRequest request;
  request.factors = &call.factors;
  request.results = &call.results;
  request.wanted_results = wanted;
  for (size_t i = 0; i < call.operands.size(); ++i)
    request.operands.push_back({&call.operands[i], operands[i]});
  return compile::PlaceNode(request, mesh);
}

// PlaceNode must choose the split that the operands' placements suggest, with the results that the
// factors give.
std::string CheckPlacing(const OpCall& call, const compile::OpSplit& placements, bool suggested,
                         const Mesh& mesh) {
  Result<compile::NodePlacing> placing =
      Place(call, placements.operands, suggested ? nullptr : &placements.results, mesh);
  if (!placing.ok()) return Format(placing.diagnostics());
  if (placing->operands != placements.operands) return "PlaceNode moves an operand";
  if (placing->results != placements.results) return "PlaceNode places a result elsewhere";
  if (!placing->dropped.empty()) return "PlaceNode drops an axis";
  return "";
}

void CheckSplits(const OpRun& run, const Mesh& mesh, uint32_t, Counts& counts, Report& report) {
  const OpCall& call = run.call();
  Result<std::vector<compile::OpSplit>> known =
      compile::SplitsOf(call.factors, call.operands, call.results, mesh);
  if (!known.ok()) report.Fail(Describe(call), Format(known.diagnostics()));
  for (const CallSplit& split : CallSplits(call, mesh)) {
    std::optional<compile::OpSplit> placements = PlacementsOf(call, split, mesh);
    if (!placements) continue;
    if (known.ok() && std::ranges::find(*known, *placements) == known->end())
      report.Fail(Describe(call, split, mesh), "SplitsOf lacks it");
    SplitTraits traits = TraitsOf(call, split, mesh);
    ++counts.cases;
    counts.uneven += traits.uneven;
    counts.empty += traits.empty;
    counts.sums += split.has_sums();
    std::string error = CheckPlacing(call, *placements, traits.suggested, mesh);
    if (error.empty()) {
      Module global =
          ModuleOf(call, View::kGlobal, mesh, placements->operands, placements->results);
      OpRun::Outcome outcome = run.Check(std::move(global), placements->operands,
                                         ToleranceOf(call, traits), ComparedResults(call.op));
      error = outcome.error;
      if (error.empty() && outcome.collectives > 0) error = "data moves between ranks";
    }
    if (!error.empty()) report.Fail(Describe(call, split, mesh), error);
  }
}

// On each axis an operand is replicated, split along any dimension, or a pending sum.
Placement RandomPlacement(const Type& type, const ExampleInput& data, const Mesh& mesh,
                          std::mt19937& random) {
  Placement placement;
  if (type.is_none()) return placement;
  placement.splits.resize(type.rank());
  // The state of a random number generator, in u64, cannot be a sum.
  bool may_be_sum = type.dtype != DType::kBool && type.dtype != DType::kU64 &&
                    data.data == ExampleInput::Data::kAny;
  std::vector<AxisId> axes(mesh.axes().size());
  std::iota(axes.begin(), axes.end(), 0);
  if (random() % 2 == 0) std::ranges::reverse(axes);
  for (AxisId axis : axes) {
    size_t way = random() % (type.rank() + 2);
    if (way < type.rank()) placement.splits[way].Add(axis);
    if (way == type.rank() && may_be_sum) placement.partials.push_back({axis, ReduceOp::kSum});
  }
  placement.Normalize();
  return placement;
}

// For arbitrary placements, operands are redistributed so that the op gives correct results.
void CheckAnyPlacements(const OpRun& run, const Mesh& mesh, uint32_t seed, Counts& counts,
                        Report& report) {
  constexpr int kTries = 6;
  const OpCall& call = run.call();
  std::mt19937 random(seed);
  for (int i = 0; i < kTries; ++i) {
    compile::OpSplit placements;
    for (size_t o = 0; o < call.operands.size(); ++o)
      placements.operands.push_back(RandomPlacement(call.operands[o], call.data[o], mesh, random));
    Result<compile::NodePlacing> placing = Place(call, placements.operands, nullptr, mesh);
    // Only operands that split a sum differently are rejected.
    if (!placing.ok() && placing.diagnostics()[0].kind == Diag::kContraction) {
      ++counts.refused;
      continue;
    }
    ++counts.cases;
    std::string error = placing.ok() ? "" : Format(placing.diagnostics());
    Module global(ModuleOf(call, View::kGlobal, mesh, placements.operands,
                           placing.ok() ? placing->results : std::vector<Placement>()));
    double tolerance = ToleranceOf(call, {.kept = false});
    OpRun::Outcome outcome;
    if (error.empty())
      outcome = run.Check(global, placements.operands, tolerance, ComparedResults(call.op));
    counts.moved += outcome.collectives > 0;
    error += outcome.error;
    if (!error.empty()) report.Fail(Describe(call) + "\n" + Print(global), error);
  }
}

// Makes a run in f64, or in the call's own types if f64 is not supported; nullopt if neither runs.
std::optional<OpRun> MakeRun(const OpCall& call, uint32_t seed) {
  if (Contains(kInPythonOnly, call.op)) return std::nullopt;
  // Kernels for GPUs support only some sizes. An op without any supported call is a failure.
  if (FindGpuOp(call.op) != nullptr) {
    if (!at::hasCUDA()) return std::nullopt;
    Result<OpRun> run = OpRun::Make(call, seed, c10::kCUDA);
    return run.ok() ? std::optional(*std::move(run)) : std::nullopt;
  }
  bool narrow = std::ranges::any_of(kNarrow, [&](const Narrow& n) { return n.op == call.op; });
  std::optional<OpCall> wide = narrow ? std::nullopt : Widened(call);
  Result<OpRun> run = OpRun::Make(wide ? *wide : call, seed);
  if (!run.ok()) ADD_FAILURE() << Describe(call) << "\n" << Format(run.diagnostics());
  return run.ok() ? std::optional(*std::move(run)) : std::nullopt;
}

bool CanBeSplit(const OpCall& call) { return !CallSplits(call, Meshes()[0]).empty(); }

using Check = void (*)(const OpRun&, const Mesh&, uint32_t, Counts&, Report&);

// Checks the op's calls in several sizes, on all meshes. Returns whether any of them can be split.
bool ForEachCall(OpId op, Check check, Counts& counts) {
  Report report(op);
  bool splits = false;
  uint32_t seed = op.index() * 1000;
  for (const OpCall& call : CallsOf(op)) {
    std::vector<OpCall> calls{call};
    for (size_t turn = 0; turn < 3 && CanBeSplit(call); ++turn)
      calls.push_back(Resized(call, turn));
    for (const OpCall& sized : calls) {
      splits |= CanBeSplit(sized);
      std::optional<OpRun> run = MakeRun(sized, ++seed);
      if (!run) continue;
      for (const Mesh& mesh : Meshes()) check(*run, mesh, seed, counts, report);
    }
  }
  return splits;
}

// Ops that name mesh axes or need a local graph work on shards; splitting another op makes them.
bool IsSplit(OpId op) {
  return op != kOpaqueOp && Ops()[op].family != "comm" &&
         Ops()[op].schema.Find("over") == nullptr && Ops()[op].def->view != View::kLocal;
}

TEST(Conformance, OfEveryOpInEverySplit) {
  at::set_num_threads(1);
  Quiet quiet;
  Counts counts;
  for (OpId op : Ops().ids()) {
    if (!IsSplit(op)) continue;
    int64_t before = counts.cases;
    bool splits = ForEachCall(op, CheckSplits, counts);
    bool ran = counts.cases > before;
    bool skipped = FindGpuOp(op) != nullptr && !at::hasCUDA();
    if (skipped) std::cout << "skipped: " << Ops()[op].name() << ": no GPU\n";
    if (ran != (splits && !skipped && !Contains(kInPythonOnly, op)))
      ADD_FAILURE() << Ops()[op].name()
                    << (ran ? " ran, but is listed as not running" : ": no case ran");
  }
  std::cout << fmt::format("{} cases: {} uneven, {} with empty parts, {} with pending sums\n",
                           counts.cases, counts.uneven, counts.empty, counts.sums);
  EXPECT_GE(counts.cases, 5000);
  EXPECT_GE(counts.uneven, 1000);
  EXPECT_GE(counts.empty, 500);
  EXPECT_GE(counts.sums, 500);
}

TEST(Conformance, OfEveryOpWithOperandsAnywhere) {
  at::set_num_threads(1);
  Quiet quiet;
  Counts counts;
  for (OpId op : Ops().ids()) {
    // Random numbers differ between ranks.
    if (IsSplit(op) && Ops()[op].effect() != Effect::kRandom)
      ForEachCall(op, CheckAnyPlacements, counts);
  }
  std::cout << fmt::format("{} cases: {} move data, {} more refused\n", counts.cases, counts.moved,
                           counts.refused);
  EXPECT_GE(counts.cases, 5000);
  EXPECT_GE(counts.moved, 1000);
}

}  // namespace
}  // namespace heddle
