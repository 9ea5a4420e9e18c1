// Heddle's own ops: collectives, redistributions, and moves between device and host memory.
//
// A collective takes any number of tensors and launches once. It returns one async value, and its
// wait returns the tensors. `over` lists mesh axes in rank order, the slowest first. `dim` is the
// gathered or scattered dimension, for all tensors or for each. `unit` is the FSDP unit, likewise.
// `sizes` of an all-to-all are the rows received from each rank, if they differ. In a shift, each
// rank sends its tensors to the next rank of its group, and the last rank sends to the first.
//
// `comm.send` and `comm.recv` move one tensor between the graphs of two coordinates of the axis
// `over`. Both state the other coordinate, and `tag` names the transfer. The wait of a send returns
// an empty receipt: until then, the transfer reads the tensor.
//
// `shard.slice` returns this rank's part of a tensor that all ranks have. It is a copy, because a
// view of a part cannot always be viewed in another shape. `shard.bound` is the begin or end of
// this rank's part of a dimension of `size`.
#include <algorithm>

#include "heddle/core/ops/op_rules.h"

namespace heddle {
namespace {

// The size of a dimension after gathering it over `over`. A number is multiplied. A chunk loses its
// innermost axes. If `over` has more axes than the chunk shows, the outer ones divided the size, so
// they multiply it again.
Result<Dim> GatheredSize(const OpArgs& args, Dim size) {
  Axes over = args.AxesOf("over");
  if (!IsSymbol(size)) return NumElements(args, {size, args.mesh().Size(over)});
  const Symbol symbol = args.symbols()[size];
  size_t shared = std::min(symbol.axes.size(), over.size());
  bool fits = symbol.is_chunk();
  for (size_t i = 1; i <= shared; ++i)
    fits &= symbol.axes[symbol.axes.size() - i] == over[over.size() - i];
  if (fits) {
    Axes rest;
    for (size_t i = 0; i < symbol.axes.size() - shared; ++i) rest.Add(symbol.axes[i]);
    Axes outer;
    for (size_t i = 0; i < over.size() - shared; ++i) outer.Add(over[i]);
    Dim gathered =
        rest.empty() ? symbol.whole : args.symbols().Chunk(symbol.whole, rest, args.mesh());
    return outer.empty() ? Result<Dim>(gathered)
                         : NumElements(args, {gathered, args.mesh().Size(outer)});
  }
  return Error(Diag::kCommSize, "the innermost split of a dimension of size {} is not over [{}]",
               DimText(args, size), Format(args.mesh(), over));
}

// The size of this rank's part after scattering a dimension over `over`.
Result<Dim> ScatteredSize(const OpArgs& args, Dim size) {
  Axes over = args.AxesOf("over");
  if (!IsSymbol(size)) return args.symbols().Chunk(size, over, args.mesh());
  const Symbol symbol = args.symbols()[size];
  if (!symbol.is_chunk())
    return Error(Diag::kCommSize, "a dimension of size {} cannot be scattered",
                 DimText(args, size));
  Axes axes = symbol.axes;
  for (AxisId axis : over) {
    if (!axes.Add(axis))
      return Error(Diag::kCommSize, "a dimension of size {} is already split over [{}]",
                   DimText(args, size), Format(args.mesh(), over));
  }
  return args.symbols().Chunk(symbol.whole, axes, args.mesh());
}

using SizeRule = Result<Dim> (*)(const OpArgs&, Dim);

// Applies a size rule to the dimension of every operand that an attribute names.
Result<Types> CollectiveShape(const OpArgs& args,
                              std::initializer_list<std::pair<std::string_view, SizeRule>> rules) {
  HEDDLE_RETURN_IF_ERROR(CheckOver(args));
  if (args.size() == 0) return Error(Diag::kOperandCount, "a collective has at least one tensor");
  std::vector<Type> elements;
  for (size_t i = 0; i < args.size(); ++i) {
    Type type = args[i];
    for (auto [attr, rule] : rules) {
      HEDDLE_RETURN_IF_ERROR(CheckRankAtLeast(args, i, 1));
      HEDDLE_TRY(size_t dim, WrapDim(args.EachInt(attr, i), type.rank()));
      HEDDLE_TRY(type.dims[dim], rule(args, type.dims[dim]));
    }
    elements.push_back(std::move(type));
  }
  return Types{Type::Async(std::move(elements))};
}

Result<Types> AllGatherShape(const OpArgs& args) {
  return CollectiveShape(args, {{"dim", GatheredSize}});
}
Result<Types> ReduceScatterShape(const OpArgs& args) {
  return CollectiveShape(args, {{"dim", ScatteredSize}});
}
Result<Types> AllReduceShape(const OpArgs& args) { return CollectiveShape(args, {}); }
// `sizes` has the number of rows from each rank, which may differ. The result has their sum.
Result<Types> UnevenAllToAllShape(const OpArgs& args) {
  HEDDLE_TRY(Types types, CollectiveShape(args, {}));
  const std::vector<int64_t>& sizes = args.Ints("sizes");
  if (static_cast<int64_t>(sizes.size()) != args.mesh().Size(args.AxesOf("over")))
    return Error(Diag::kCommSize, "`sizes` has {} for {} ranks", sizes.size(),
                 args.mesh().Size(args.AxesOf("over")));
  if (args.size() != 1 || args.EachInt("split_dim", 0) != 0 || args.EachInt("concat_dim", 0) != 0)
    return Error(Diag::kCommSize,
                 "`sizes` requires a single tensor, split and joined along dimension 0");
  HEDDLE_RETURN_IF_ERROR(CheckRankAtLeast(args, 0, 1));
  Dim sum = 0;
  for (int64_t size : sizes) {
    if (size < 0 || __builtin_add_overflow(sum, size, &sum))
      return Error(Diag::kCommSize, "`sizes` has a part of {} rows", size);
  }
  types[0].elements[0].dims[0] = sum;
  return types;
}
Result<Types> ShiftShape(const OpArgs& args) {
  for (const Type& type : args.operands()) {
    // Ranks may have parts of different sizes.
    if (std::ranges::any_of(type.dims, IsSymbol))
      return Error(Diag::kCommSize, "a tensor {} cannot be shifted, because ranks may differ in it",
                   DimsText(args, type.dims));
  }
  return CollectiveShape(args, {});
}
Result<Types> AllToAllShape(const OpArgs& args) {
  if (!args.IsNone("sizes")) return UnevenAllToAllShape(args);
  return CollectiveShape(args, {{"split_dim", ScatteredSize}, {"concat_dim", GatheredSize}});
}
// No collective: every rank has the whole tensor and keeps its part.
Result<Types> SliceShape(const OpArgs& args) {
  HEDDLE_TRY(Types types, CollectiveShape(args, {{"dim", ScatteredSize}}));
  return types[0].elements;
}
Result<Types> BoundShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckOver(args));
  if (args.Int("size") < 0)
    return Error(Diag::kShapeMismatch, "size {} is negative", args.Int("size"));
  return Types{Type::Tensor(DType::kI64, {})};
}
// `over` is one axis, and `peer` names an attribute with a coordinate on it.
Status CheckPeer(const OpArgs& args, std::string_view peer) {
  HEDDLE_RETURN_IF_ERROR(CheckOver(args));
  Axes over = args.AxesOf("over");
  if (over.size() != 1)
    return Error(Diag::kUnknownAxis, "`over` has {} axes; a transfer has one", over.size());
  const MeshAxis& axis = args.mesh()[over[0]];
  int64_t coordinate = args.Int(peer);
  if (coordinate >= 0 && coordinate < axis.size) return Done{};
  return Error(Diag::kCommSize, "`{}` is {}, but axis `{}` has {} coordinates", peer, coordinate,
               axis.name, axis.size);
}
Result<Types> SendShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckPeer(args, "to"));
  return Types{Type::Async({Type::Tensor(DType::kBool, {0})})};
}
Result<Types> RecvShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckPeer(args, "from"));
  Dims dims = args.Ints("size");
  for (Dim dim : dims) {
    if (dim < 0 && !IsSymbol(dim)) return Error(Diag::kShapeMismatch, "size {} is negative", dim);
  }
  DType dtype = args.DTypeOr("dtype", DType::kF32);
  HEDDLE_RETURN_IF_ERROR(NumElements(args, dims));
  return Types{Type::Async({Type::Tensor(dtype, std::move(dims))})};
}
Result<Types> WaitShape(const OpArgs& args) { return args[0].elements; }
Result<Types> SameShape(const OpArgs& args) { return Types{args[0]}; }

Result<Types> MoveTo(const OpArgs& args, Space from, Space to) {
  if (args[0].space != from)
    return Error(Diag::kSpace, "operand 0 is already in {} memory",
                 to == Space::kHost ? "host" : "device");
  Type type = args[0];
  type.space = to;
  return Types{Type::Async({std::move(type)})};
}
Result<Types> OffloadShape(const OpArgs& args) {
  return MoveTo(args, Space::kDevice, Space::kHost);
}
Result<Types> ReloadShape(const OpArgs& args) { return MoveTo(args, Space::kHost, Space::kDevice); }

Bytes Sum(const OpArgs& args, const std::vector<Type>& types) {
  Bytes sum;
  for (const Type& type : types) sum += type.async ? Sum(args, type.elements) : BytesOf(args, type);
  return sum;
}
// Counts inputs and outputs; `price/cost` derives the transferred bytes.
Work CommWork(const OpArgs& args, const Types& results) {
  return {{0}, Sum(args, args.operands()), Sum(args, results)};
}
Work SliceWork(const OpArgs& args, const Types& results) {
  Bytes part = BytesOf(args, results[0]);
  return {{0}, part, part};
}

// Sharding produces these ops, so it never splits them.
Result<Factors> NoFactors(const OpArgs& args, const Types& results) {
  return WholeFactors(args, results);
}

constexpr OpDef Comm(std::string_view schema, ShapeFn shape, WorkFn work, std::string_view example,
                     std::optional<View> view = View::kLocal, Effect effect = Effect::kComm) {
  return {.schema = schema,
          .shape = shape,
          .factors = {.compute = NoFactors},
          .work = work,
          .effect = effect,
          .view = view,
          .example = example};
}

}  // namespace

HEDDLE_DEFINE_OP(comm_all_gather)
Comm(
    "comm::all_gather(Tensor... inputs, *, Axes over, int... dim=0, Why why, str...? unit=None) -> "
    "Async",
    AllGatherShape, CommWork, "(bf16[2,8], bf16[8,4], over=[dp], dim=[0,1], why=unshard)");
HEDDLE_DEFINE_OP(comm_reduce_scatter)
Comm(
    "comm::reduce_scatter(Tensor... inputs, *, Axes over, int... dim=0, ReduceOp op=sum, float "
    "scale=1.0, Why why, str...? unit=None) -> Async",
    ReduceScatterShape, CommWork, "(f32[8,8], over=[dp], why=grad)");
HEDDLE_DEFINE_OP(comm_all_reduce)
Comm(
    "comm::all_reduce(Tensor... inputs, *, Axes over, ReduceOp op=sum, float scale=1.0, Why why, "
    "str...? unit=None) -> Async",
    AllReduceShape, CommWork, "(f32[8,8], over=[dp], why=grad)");
HEDDLE_DEFINE_OP(comm_all_to_all)
Comm(
    "comm::all_to_all(Tensor... inputs, *, Axes over, int... split_dim, int... concat_dim, int[]? "
    "sizes=None, Why why, str...? unit=None) -> Async",
    AllToAllShape, CommWork, "(bf16[8,2], over=[dp], split_dim=0, concat_dim=1, why=tensor)");
HEDDLE_DEFINE_OP(comm_send)
Comm("comm::send(Tensor input, *, Axes over, int to, str tag) -> Async", SendShape, CommWork,
     "(bf16[8,8], over=[dp], to=1, tag=\"F0\")");
HEDDLE_DEFINE_OP(comm_recv)
Comm("comm::recv(*, Axes over, int from, SymInt[] size, ScalarType dtype, str tag) -> Async",
     RecvShape, CommWork, "(over=[dp], from=0, size=[8,8], dtype=bf16, tag=\"F0\")");
HEDDLE_DEFINE_OP(comm_shift)
Comm("comm::shift(Tensor... inputs, *, Axes over, Why why, str...? unit=None) -> Async", ShiftShape,
     CommWork, "(bf16[2,8], f32[4], over=[dp], why=context)");
HEDDLE_DEFINE_OP(comm_wait)
Comm("comm::wait(Async handle) -> Tensor...", WaitShape, NoWork, "(async bf16[8,8])", {});
HEDDLE_DEFINE_OP(shard_redistribute)
Comm(
    "shard::redistribute(Tensor input, *, Why why, str? unit=None, bool average=False, float "
    "scale=1.0) -> Tensor",
    SameShape, CommWork, "(bf16[8,8], why=unshard)", View::kGlobal);
HEDDLE_DEFINE_OP(shard_slice)
Comm("shard::slice(Tensor input, *, Axes over, int dim=0) -> Tensor", SliceShape, SliceWork,
     "(bf16[8,8], over=[dp], dim=1)", View::kLocal, Effect::kPure);
HEDDLE_DEFINE_OP(shard_bound)
Comm("shard::bound(int size, *, Axes over, bool end=False) -> Tensor", BoundShape, NoWork,
     "(size=10, over=[dp], end=true)", View::kLocal, Effect::kPure);
HEDDLE_DEFINE_OP(mem_offload)
Comm("mem::offload(Tensor input) -> Async", OffloadShape, CommWork, "(bf16[8,8])", {});
HEDDLE_DEFINE_OP(mem_reload)
Comm("mem::reload(Tensor input) -> Async", ReloadShape, CommWork, "(host bf16[8,8])", {});

}  // namespace heddle
