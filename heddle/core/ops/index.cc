// Indexing, sorting and counting.
#include <algorithm>

#include "heddle/core/base/text.h"
#include "heddle/core/ops/op_rules.h"

namespace heddle {
namespace {

bool IsIndex(DType dtype) { return dtype == DType::kI64 || dtype == DType::kI32; }

// --- index, index_put: a list of index tensors, one for each leading dimension. A none keeps its
// dimension.

struct Indexed {
  // Which dimensions are indexed, and the broadcast shape of the index tensors.
  std::vector<bool> flags;
  Dims positions;
  // The position of that shape in the indexed shape.
  size_t at = 0;
  // The shape of the result of indexing.
  Dims dims;
};

Result<Indexed> ReadIndices(const OpArgs& args) {
  const Dims& self = args.dims(0);
  std::span<const Type> indices = args.list(0);
  if (indices.size() > self.size())
    return Error(Diag::kRank, "{} indices are given, the tensor has {}", indices.size(),
                 Counted(self.size(), "dimension"));
  Indexed out;
  out.flags.resize(self.size(), false);
  size_t runs = 0;
  size_t first = self.size();
  for (size_t d = 0; d < indices.size(); ++d) {
    if (indices[d].is_none()) continue;
    if (!IsIndex(indices[d].dtype)) {
      return Error(Diag::kDTypeMismatch,
                   "index {} is {}; use i64 or i32, because the size of others depends on the data",
                   d, Name(indices[d].dtype));
    }
    runs += d == 0 || !out.flags[d - 1];
    first = std::min(first, d);
    out.flags[d] = true;
  }
  if (runs == 0) return Error(Diag::kOperandCount, "all indices are none");
  HEDDLE_TRY(out.positions, Broadcast(args, 1, 1 + indices.size()));
  // Indices in separate dimensions put their shape first.
  out.at = runs == 1 ? first : 0;
  for (size_t d = 0; d < self.size(); ++d) {
    if (!out.flags[d]) out.dims.push_back(self[d]);
  }
  out.dims.insert(out.dims.begin() + static_cast<ptrdiff_t>(out.at), out.positions.begin(),
                  out.positions.end());
  return out;
}

Result<Types> IndexShape(const OpArgs& args) {
  HEDDLE_TRY(Indexed indexed, ReadIndices(args));
  return Types{Type::Tensor(args.dtype(0), std::move(indexed.dims))};
}

Result<Types> IndexPutShape(const OpArgs& args) {
  HEDDLE_TRY(Indexed indexed, ReadIndices(args));
  const Type& values = args[args.size() - 1];
  bool fits = values.rank() <= indexed.dims.size();
  for (size_t d = 0; fits && d < values.rank(); ++d) {
    Dim wanted = indexed.dims[indexed.dims.size() - values.rank() + d];
    fits = values.dims[d] == wanted || values.dims[d] == 1;
  }
  if (!fits) {
    return Error(Diag::kShapeMismatch, "values are {}, but the indexed positions are {}",
                 DimsText(args, values.dims), DimsText(args, indexed.dims));
  }
  return Types{args[0]};
}

// Dimensions without an index carry over. Positions can be split if the op only reads them.
Result<Factors> IndexFactors(const OpArgs& args, const Types&) {
  HEDDLE_TRY(Indexed indexed, ReadIndices(args));
  bool put = args.op().schema.Find("accumulate") != nullptr;
  Factors factors;
  TensorFactors self = AddDims(factors, args[0], "d");
  // A single vector of positions may be those of a rank's own rows, as in index_select.
  bool vector = indexed.positions.size() == 1 && std::ranges::count(indexed.flags, true) == 1;
  for (size_t d = 0; d < self.size(); ++d) {
    if (!indexed.flags[d]) continue;
    factors.factors[d].kind = FactorKind::kWhole;
    factors.factors[d].local = vector;
  }
  TensorFactors positions = AddDims(factors, Type::Tensor(DType::kI64, indexed.positions), "i",
                                    put ? FactorKind::kWhole : FactorKind::kKeep);
  if (put && vector) factors.factors[positions[0][0]].local = true;
  TensorFactors result;
  for (size_t d = 0; d < self.size(); ++d) {
    if (!indexed.flags[d]) result.push_back(self[d]);
  }
  result.insert(result.begin() + static_cast<ptrdiff_t>(indexed.at), positions.begin(),
                positions.end());
  auto aligned = [](const Type& type, const TensorFactors& to, const Dims& sizes) {
    TensorFactors dims(type.rank());
    for (size_t d = 0; d < dims.size(); ++d) {
      size_t at = to.size() - dims.size() + d;
      if (type.dims[d] == sizes[at]) dims[d] = to[at];
    }
    return dims;
  };
  factors.operands.push_back(self);
  for (const Type& index : args.list(0))
    factors.operands.push_back(aligned(index, positions, indexed.positions));
  factors.linear.push_back({0});
  if (put) {
    factors.operands.push_back(aligned(args[args.size() - 1], result, indexed.dims));
    factors.linear[0].push_back(static_cast<uint32_t>(args.size() - 1));
  }
  factors.results = {put ? self : result};
  return factors;
}

// --- gather, scatter: an index tensor of the same rank, along one dimension.

Status CheckAlong(const OpArgs& args, size_t index) {
  if (!IsIndex(args.dtype(index)))
    return Error(Diag::kDTypeMismatch, "operand {} is {}, expected i64 indices", index,
                 Name(args.dtype(index)));
  return CheckRank(args, index, args[0].rank());
}

Result<Types> GatherShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(DimAttr(args, args[0].rank()));
  HEDDLE_RETURN_IF_ERROR(CheckAlong(args, 1));
  return Types{Type::Tensor(args.dtype(0), args.dims(1))};
}

Result<Types> ScatterShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(DimAttr(args, args[0].rank()));
  HEDDLE_RETURN_IF_ERROR(CheckAlong(args, 1));
  if (args.size() > 2) HEDDLE_RETURN_IF_ERROR(CheckRank(args, 2, args[0].rank()));
  return Types{args[0]};
}

// Dimensions of the same size in all tensors carry over. A gather's positions can be split, too.
Result<Factors> AlongFactors(const OpArgs& args, const Types&) {
  size_t rank = args[0].rank();
  HEDDLE_TRY(size_t dim, DimAttr(args, rank));
  bool gather = args.op().schema.Find("sparse_grad") != nullptr;
  Factors factors;
  TensorFactors self = AddDims(factors, args[0], "d");
  TensorFactors index(rank);
  TensorFactors source(rank);
  for (size_t d = 0; d < rank; ++d) {
    bool same = d != dim && args.dims(1)[d] == args.dims(0)[d] &&
                (args.size() < 3 || args.dims(2)[d] == args.dims(0)[d]);
    if (same) {
      index[d] = source[d] = self[d];
      continue;
    }
    factors.factors[d].kind = FactorKind::kWhole;
    index[d] = {factors.Add(fmt::format("i{}", d), args.dims(1)[d],
                            gather && d == dim ? FactorKind::kKeep : FactorKind::kWhole)};
    if (args.size() > 2)
      source[d] = {factors.Add(fmt::format("s{}", d), args.dims(2)[d], FactorKind::kWhole)};
  }
  factors.operands = {self, index};
  if (args.size() > 2) factors.operands.push_back(source);
  factors.results = {gather ? index : self};
  return factors;
}

// --- index_select, index_add: a vector of positions along one dimension.

Result<Types> IndexSelectShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRankAtLeast(args, 0, 1));
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, 1, 1));
  HEDDLE_TRY(size_t dim, DimAttr(args, args[0].rank()));
  Dims dims = args.dims(0);
  dims[dim] = args.dims(1)[0];
  return Types{Type::Tensor(args.dtype(0), std::move(dims))};
}

Result<Types> IndexAddShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRankAtLeast(args, 0, 1));
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, 1, 1));
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, 2, args[0].rank()));
  HEDDLE_TRY(size_t dim, DimAttr(args, args[0].rank()));
  for (size_t d = 0; d < args[0].rank(); ++d) {
    Dim wanted = d == dim ? args.dims(1)[0] : args.dims(0)[d];
    HEDDLE_RETURN_IF_ERROR(
        CheckSame(args, fmt::format("source differs in dimension {}", d), args.dims(2)[d], wanted));
  }
  return Types{args[0]};
}

Result<Factors> IndexSelectFactors(const OpArgs& args, const Types& results) {
  HEDDLE_TRY(size_t dim, DimAttr(args, args[0].rank()));
  bool add = args.size() == 3;
  Factors factors;
  TensorFactors self = AddDims(factors, args[0], "d");
  factors.factors[dim].kind = FactorKind::kWhole;
  factors.factors[dim].local = true;
  FactorId i = factors.Add("i", args.dims(1)[0], add ? FactorKind::kWhole : FactorKind::kKeep);
  factors.factors[i].local = add;
  TensorFactors picked = self;
  picked[dim] = {i};
  factors.operands = {self, {{i}}};
  if (add) factors.operands.push_back(picked);
  factors.results.assign(results.size(), add ? self : picked);
  return factors;
}

// --- Sorting and counting

Result<Types> SortShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(DimAttr(args, args[0].rank()));
  return Types{args[0], Type::Tensor(DType::kI64, args.dims(0))};
}

Result<Types> TopkShape(const OpArgs& args) {
  HEDDLE_TRY(size_t dim, DimAttr(args, args[0].rank()));
  Dims dims = args.dims(0);
  int64_t k = args.Int("k");
  if (!dims.empty()) {
    if (!IsSymbol(dims[dim]) && (k < 0 || k > dims[dim]))
      return Error(Diag::kSlice, "`k` is {}, the dimension has size {}", k, dims[dim]);
    dims[dim] = k;
  }
  return Types{Type::Tensor(args.dtype(0), dims), Type::Tensor(DType::kI64, dims)};
}

Result<Factors> SortFactors(const OpArgs& args, const Types& results) {
  HEDDLE_TRY(size_t dim, DimAttr(args, args[0].rank()));
  Factors factors;
  TensorFactors self = AddDims(factors, args[0], "d");
  TensorFactors sorted = self;
  if (!self.empty()) {
    factors.factors[dim].kind = FactorKind::kWhole;
    if (results[0].dims[dim] == args.dims(0)[dim]) {
      factors.factors[dim].local = true;
    } else {
      sorted[dim] = {factors.Add("k", results[0].dims[dim], FactorKind::kWhole)};
    }
  }
  factors.operands = {self};
  factors.results.assign(results.size(), sorted);
  return factors;
}

Result<Types> HistcShape(const OpArgs& args) {
  if (args.Int("bins") < 1)
    return Error(Diag::kShapeMismatch, "`bins` is {}, expected at least 1", args.Int("bins"));
  return Types{Type::Tensor(args.dtype(0), {args.Int("bins")})};
}

Result<Types> BincountShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRank(args, 0, 1));
  if (args.Int("minlength") < 1) {
    return Error(Diag::kSymbolicSize,
                 "`minlength` is {}; without it the length depends on the data",
                 args.Int("minlength"));
  }
  DType dtype = !args.has(1)                   ? DType::kI64
                : args.dtype(1) == DType::kF32 ? DType::kF32
                                               : DType::kF64;
  return Types{Type::Tensor(dtype, {args.Int("minlength")})};
}

// Counts of parts add up if the bins do not depend on the data.
Result<Factors> CountFactors(const OpArgs& args, const Types& results) {
  bool fixed =
      args.op().schema.Find("bins") == nullptr || !SameValue(args.attr("min"), args.attr("max"));
  Factors factors;
  TensorFactors counted =
      AddDims(factors, args[0], "d", fixed ? FactorKind::kReduce : FactorKind::kWhole);
  factors.operands.assign(args.size(), counted);
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args.has(i)) factors.operands[i].clear();
  }
  // ATen ignores the type of the weights if the input is empty.
  if (args.has(1)) factors.factors[0].nonempty = true;
  factors.results = {AddDims(factors, results[0], "b", FactorKind::kWhole)};
  return factors;
}

constexpr OpDef Index(std::string_view schema, ShapeFn shape, FactorsFn factors,
                      std::string_view linear, std::string_view example) {
  return {.schema = schema,
          .shape = shape,
          .factors = {.compute = factors, .linear = linear},
          .example = example};
}

}  // namespace

HEDDLE_DEFINE_OP(index_Tensor)
Index("aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor", IndexShape, IndexFactors, "",
      "(f32[4,6,8], [none, i64[3,1] below 6, i64[5] below 8])");
HEDDLE_DEFINE_OP(_unsafe_index_Tensor)
Index("aten::_unsafe_index.Tensor(Tensor self, Tensor?[] indices) -> Tensor", IndexShape,
      IndexFactors, "", "(f32[4,6], [i64[3] below 4])");
HEDDLE_DEFINE_OP(index_put)
Index(
    "aten::index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> "
    "Tensor",
    IndexPutShape, IndexFactors, "",
    "(f32[4,6], [none, i64[3] below 6], f32[4,3], accumulate=true)");
HEDDLE_DEFINE_OP(_unsafe_index_put)
Index(
    "aten::_unsafe_index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) "
    "-> Tensor",
    IndexPutShape, IndexFactors, "", "(f32[4,6], [i64[3] below 4], f32[3,6], accumulate=true)");
HEDDLE_DEFINE_OP(gather)
Index("aten::gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor",
      GatherShape, AlongFactors, "0", "(f32[4,6], i64[4,3] below 6, dim=1)");
HEDDLE_DEFINE_OP(scatter_src)
Index("aten::scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor", ScatterShape,
      AlongFactors, "0+2", "(f32[4,6], i64[4,1] below 6, f32[4,1], dim=1)");
HEDDLE_DEFINE_OP(scatter_value)
Index("aten::scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
      ScatterShape, AlongFactors, "", "(f32[4,6], i64[4,2] below 6, dim=1, value=1)");
HEDDLE_DEFINE_OP(scatter_add)
Index("aten::scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor", ScatterShape,
      AlongFactors, "0+2", "(f32[4,6], i64[4,3] below 6, f32[4,3], dim=1)");
HEDDLE_DEFINE_OP(index_select)
Index("aten::index_select(Tensor self, int dim, Tensor index) -> Tensor", IndexSelectShape,
      IndexSelectFactors, "0", "(f32[4,6], i64[3] below 6, dim=1)");
HEDDLE_DEFINE_OP(index_add)
Index(
    "aten::index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> "
    "Tensor",
    IndexAddShape, IndexSelectFactors, "0+2", "(f32[4,6], i64[3] below 6, f32[4,3], dim=1)");
HEDDLE_DEFINE_OP(sort)
Index(
    "aten::sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
    SortShape, SortFactors, "", "(f32[4,6])");
HEDDLE_DEFINE_OP(sort_stable)
Index(
    "aten::sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor "
    "values, Tensor indices)",
    SortShape, SortFactors, "", "(i64[4,6] below 3, stable=true, dim=1)");
HEDDLE_DEFINE_OP(topk)
Index(
    "aten::topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor "
    "values, Tensor indices)",
    TopkShape, SortFactors, "", "(f32[4,6], k=2, dim=1)");
HEDDLE_DEFINE_OP(histc)
Index("aten::histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor", HistcShape,
      CountFactors, "", "(f32[4,6], bins=5, min=-1, max=1)");
HEDDLE_DEFINE_OP(bincount)
Index("aten::bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor",
      BincountShape, CountFactors, "", "(i64[24] below 5, minlength=5)");

}  // namespace heddle
