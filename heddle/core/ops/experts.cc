// Exchange of rows between ranks for a mixture of experts.
//
// Each rank of a group has an equal part of the experts, in rank order. A rank counts its rows by
// expert (`sent`), and ranks exchange these counts. `received` has the number of rows for each
// sender and each expert of this rank. Rows are sorted by expert before they are sent. A dispatch
// gives each rank the rows of its experts, sorted by expert, then by sender, then in the sender's
// order. A combine returns them. Each op is the other's gradient.
//
// `shard` ops are for global modules, where `over` names the group. The pass localize converts them
// to `comm` ops. The number of rows that a rank receives depends on the data; `most` is its
// maximum. With `size`, the symbol of that name is the number of rows. Without it, rows are in a
// buffer of `most` rows, padded with zeros.
#include "heddle/core/ops/op_rules.h"

namespace heddle {
namespace {

Result<int64_t> GroupSize(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckOver(args));
  return args.mesh().Size(args.AxesOf("over"));
}

// Operand `i` has row counts by expert. Checks that the ranks divide the number of experts.
Status CheckCounts(const OpArgs& args, size_t i, int64_t ranks) {
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, i, 1));
  if (args.dtype(i) != DType::kI64)
    return Error(Diag::kDTypeMismatch, "operand {} is {}, counts are i64", i, Name(args.dtype(i)));
  Dim experts = args.dims(i)[0];
  if (IsSymbol(experts) || experts % ranks != 0)
    return Error(Diag::kCommSize, "{} experts cannot be divided evenly among {} ranks",
                 DimText(args, experts), ranks);
  return Done{};
}

Result<int64_t> CheckExchange(const OpArgs& args) {
  HEDDLE_TRY(int64_t ranks, GroupSize(args));
  HEDDLE_RETURN_IF_ERROR(CheckRankAtLeast(args, 0, 1));
  HEDDLE_RETURN_IF_ERROR(CheckCounts(args, 1, ranks));
  HEDDLE_RETURN_IF_ERROR(CheckCounts(args, 2, ranks));
  HEDDLE_RETURN_IF_ERROR(
      CheckSame(args, "numbers of experts differ", args.dims(1)[0], args.dims(2)[0]));
  return ranks;
}

// --- One rank

Result<Dim> RowsReceived(const OpArgs& args) {
  int64_t most = args.Int("most");
  if (most < 0 || IsSymbol(most)) return Error(Diag::kCommSize, "`most` is not a number of rows");
  if (args.IsNone("size")) return most;
  const std::string& name = std::get<std::string>(args.attr("size"));
  HEDDLE_RETURN_IF_ERROR(CheckAxisName(name));
  if (args.mesh().Find(name))
    return Error(Diag::kReservedName, "`{}` is an axis of the mesh and cannot name a symbol", name);
  Dim rows = args.symbols().Named(name, most);
  if (args.symbols().Bound(rows) != most)
    return Error(Diag::kSymbolBound, "symbol `{}` has bound {} here and {} before", name, most,
                 args.symbols().Bound(rows));
  return rows;
}

Result<Types> CommDispatchShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckExchange(args));
  Type type = args[0];
  HEDDLE_TRY(type.dims[0], RowsReceived(args));
  return Types{Type::Async({std::move(type)})};
}
Result<Types> CommCombineShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckExchange(args));
  if (args.Int("rows_back") < 0 || IsSymbol(args.Int("rows_back")))
    return Error(Diag::kCommSize, "`rows_back` is not a number of rows");
  Type type = args[0];
  type.dims[0] = args.Int("rows_back");
  return Types{Type::Async({std::move(type)})};
}

// --- The whole mesh

Result<Types> CountsShape(const OpArgs& args) {
  HEDDLE_TRY(int64_t ranks, GroupSize(args));
  HEDDLE_RETURN_IF_ERROR(CheckCounts(args, 0, ranks));
  return Types{args[0]};
}
Result<Types> EndsShape(const OpArgs& args) {
  HEDDLE_TRY(int64_t ranks, GroupSize(args));
  HEDDLE_RETURN_IF_ERROR(CheckCounts(args, 0, ranks));
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, 1, 3));
  HEDDLE_RETURN_IF_ERROR(
      CheckSame(args, "numbers of experts differ", args.dims(0)[0], args.dims(1)[0]));
  return Types{Type::Tensor(DType::kI32, args.dims(0))};
}
Result<int64_t> Times(const OpArgs& args) {
  if (args.Int("times") >= 1 && !IsSymbol(args.dims(0)[0])) return args.Int("times");
  return Error(Diag::kCommSize, "`times` is {} for {} rows", args.Int("times"),
               DimText(args, args.dims(0)[0]));
}
Result<Types> DispatchShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckExchange(args));
  HEDDLE_TRY(int64_t times, Times(args));
  Type type = args[0];
  HEDDLE_TRY(type.dims[0], NumElements(args, {type.dims[0], times}));
  return Types{std::move(type)};
}
Result<Types> CombineShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckExchange(args));
  HEDDLE_TRY(int64_t times, Times(args));
  Type type = args[0];
  if (type.dims[0] % times != 0)
    return Error(Diag::kCommSize, "{} rows are not a multiple of {}", type.dims[0], times);
  type.dims[0] /= times;
  return Types{std::move(type)};
}

FactorId AddWhole(Factors& factors, std::string name, Dim size, bool local) {
  FactorId id = factors.Add(std::move(name), size, FactorKind::kWhole);
  factors.factors[id].local = local;
  return id;
}

// `(n d, h, h) -> ((n c) d)`, or the reverse. Rows and counts belong to each rank alone.
Result<Factors> ExchangeFactors(const OpArgs& args, const Types& results, bool there) {
  Factors factors;
  int64_t times = args.Int("times");
  const Type& few = there ? args[0] : results[0];
  FactorId n = AddWhole(factors, "n", few.dims[0], /*local=*/true);
  FactorId c = AddWhole(factors, "c", times, /*local=*/false);
  TensorFactors narrow{{n}};
  TensorFactors wide{{n, c}};
  for (size_t d = 1; d < few.rank(); ++d) {
    FactorId f = factors.Add(fmt::format("d{}", d), few.dims[d]);
    narrow.push_back({f});
    wide.push_back({f});
  }
  FactorId h = AddWhole(factors, "h", args.dims(1)[0], /*local=*/false);
  factors.operands = {there ? narrow : wide, {{h}}, {{h}}};
  factors.results = {there ? wide : narrow};
  return factors;
}
Result<Factors> DispatchFactors(const OpArgs& args, const Types& results) {
  return ExchangeFactors(args, results, /*there=*/true);
}
Result<Factors> CombineFactors(const OpArgs& args, const Types& results) {
  return ExchangeFactors(args, results, /*there=*/false);
}
// Only the split of the weights' experts matters, not their values.
Result<Factors> EndsFactors(const OpArgs& args, const Types&) {
  Factors factors;
  FactorId h = AddWhole(factors, "h", args.dims(0)[0], /*local=*/false);
  FactorId g = AddWhole(factors, "g", args.dims(0)[0], /*local=*/true);
  factors.operands = {{{h}}, {{g}, {}, {}}};
  factors.results = {{{g}}};
  factors.unread = {1};
  return factors;
}

// The smaller side is the transferred amount: each row once, regardless of the buffer's size.
Work ExchangeWork(const OpArgs& args, const Types& results) {
  const Type& result = results[0].async ? results[0].elements[0] : results[0];
  Bytes rows = std::min(BytesOf(args, args[0]), BytesOf(args, result));
  return {{0}, rows, rows};
}
constexpr OpDef Exchange(std::string_view schema, ShapeFn shape, FactorRule factors, View view,
                         std::string_view example) {
  return {.schema = schema,
          .shape = shape,
          .factors = factors,
          .work = ExchangeWork,
          .effect = Effect::kComm,
          .view = view,
          .example = example};
}

}  // namespace

HEDDLE_DEFINE_OP(comm_combine)
Exchange(
    "comm::combine(Tensor rows, Tensor sent, Tensor received, *, Axes over, int rows_back, Why "
    "why, str? unit=None) -> Async",
    CommCombineShape, {.compute = WholeFactors}, View::kLocal,
    "(bf16[16,4], i64[4], i64[4], over=[dp], rows_back=8, why=expert)");
HEDDLE_DEFINE_OP(comm_dispatch)
Exchange(
    "comm::dispatch(Tensor rows, Tensor sent, Tensor received, *, Axes over, int most, str? "
    "size=None, Why why, str? unit=None) -> Async",
    CommDispatchShape, {.compute = WholeFactors}, View::kLocal,
    "(bf16[8,4], i64[4], i64[4], over=[dp], most=16, why=expert)");
HEDDLE_DEFINE_OP(shard_combine)
Exchange(
    "shard::combine(Tensor rows, Tensor sent, Tensor received, *, Axes over, int times) -> Tensor",
    CombineShape, {.compute = CombineFactors, .linear = "0"}, View::kGlobal,
    "(bf16[16,4], i64[4], i64[4], over=[dp], times=2)");
HEDDLE_DEFINE_OP(shard_dispatch)
Exchange(
    "shard::dispatch(Tensor rows, Tensor sent, Tensor received, *, Axes over, int times) -> Tensor",
    DispatchShape, {.compute = DispatchFactors, .linear = "0"}, View::kGlobal,
    "(bf16[8,4], i64[4], i64[4], over=[dp], times=2)");
HEDDLE_DEFINE_OP(shard_expert_counts){
    .schema = "shard::expert_counts(Tensor counts, *, Axes over) -> Tensor",
    .shape = CountsShape,
    .factors = {.compute = WholeFactors},
    .work = NoWork,
    .effect = Effect::kComm,
    .view = View::kGlobal,
    .example = "(i64[4], over=[dp])",
};
HEDDLE_DEFINE_OP(shard_expert_ends){
    .schema = "shard::expert_ends(Tensor received, Tensor weights, *, Axes over) -> Tensor",
    .shape = EndsShape,
    .factors = {.compute = EndsFactors},
    .work = NoWork,
    .view = View::kGlobal,
    .example = "(i64[4], bf16[4,8,8], over=[dp])",
};

}  // namespace heddle
