// Views: other shapes of the same storage.
#include <algorithm>

#include "heddle/core/base/text.h"
#include "heddle/core/ops/op_rules.h"

namespace heddle {
namespace {

// --- Reshaping

// Resolves the -1 in the sizes of attribute `attr`. Symbols must occur on both sides in the same
// order.
Result<Dims> ReshapedDims(const OpArgs& args, std::string_view attr) {
  Dims size = args.Ints(attr);
  Dims known_in;
  Dims known_out;
  Dims symbols_in;
  Dims symbols_out;
  size_t open = SIZE_MAX;
  for (Dim dim : args.dims(0)) (IsSymbol(dim) ? symbols_in : known_in).push_back(dim);
  for (size_t d = 0; d < size.size(); ++d) {
    if (size[d] == -1 && open == SIZE_MAX) {
      open = d;
    } else if (size[d] < 0 && !IsSymbol(size[d])) {
      return Error(Diag::kReshape, "size {} of dimension {} is negative", size[d], d);
    } else {
      (IsSymbol(size[d]) ? symbols_out : known_out).push_back(size[d]);
    }
  }
  HEDDLE_TRY(int64_t in, NumElements(args, known_in));
  HEDDLE_TRY(int64_t out, NumElements(args, known_out));
  std::string from = DimsText(args, args.dims(0));
  std::string to = DimsText(args, args.Ints(attr));
  if (symbols_in != symbols_out)
    return Error(Diag::kReshape, "{} and {} have different sizes that are known only at run time",
                 from, to);
  if (open == SIZE_MAX) {
    if (in == out) return size;
    return Error(Diag::kReshape, "{} has {}, {} has {}", from, Counted(in, "element"), to, out);
  }
  if (out == 0)
    return Error(Diag::kReshape, "{} does not determine -1, because another size is 0", to);
  if (in % out != 0)
    return Error(Diag::kReshape, "{} has {}, but {} requires a multiple of {}", from,
                 Counted(in, "element"), to, out);
  size[open] = in / out;
  return size;
}

Result<Types> ViewShape(const OpArgs& args) {
  HEDDLE_TRY(Dims dims, ReshapedDims(args, "size"));
  return Types{WithDims(args, std::move(dims))};
}
Result<Types> ReshapeShape(const OpArgs& args) {
  HEDDLE_TRY(Dims dims, ReshapedDims(args, "shape"));
  return Types{WithDims(args, std::move(dims))};
}

Result<Types> ViewDTypeShape(const OpArgs& args) {
  DType dtype = std::get<DType>(args.attr("dtype"));
  int64_t from = ItemSize(args.dtype(0));
  int64_t to = ItemSize(dtype);
  Dims dims = args.dims(0);
  if (from != to) {
    HEDDLE_RETURN_IF_ERROR(CheckRankAtLeast(args, 0, 1));
    if (IsSymbol(dims.back()) || (from < to && dims.back() % (to / from) != 0)) {
      return Error(Diag::kReshape, "the last dimension, {}, cannot be viewed as {} in place of {}",
                   DimText(args, dims.back()), Name(dtype), Name(args.dtype(0)));
    }
    dims.back() = from > to ? dims.back() * (from / to) : dims.back() / (to / from);
  }
  return Types{Type::Tensor(dtype, std::move(dims))};
}

// --- Permuting

Result<std::vector<size_t>> Permutation(const OpArgs& args) {
  size_t rank = args[0].rank();
  std::vector<size_t> order(rank);
  for (size_t d = 0; d < rank; ++d) order[d] = d;
  if (args.op().schema.Find("dims") != nullptr) {
    HEDDLE_TRY(std::vector<bool> flags, DimFlags(args, rank, "dims"));
    if (args.Ints("dims").size() != rank) {
      return Error(Diag::kDimRange, "`dims` has {}, but the tensor has {}",
                   Counted(args.Ints("dims").size(), "dimension"), rank);
    }
    for (size_t d = 0; d < rank; ++d) order[d] = *WrapDim(args.Ints("dims")[d], rank);
  } else if (args.op().schema.Find("dim0") != nullptr) {
    HEDDLE_TRY(size_t a, DimAttr(args, rank, "dim0"));
    HEDDLE_TRY(size_t b, DimAttr(args, rank, "dim1"));
    if (rank > 0) std::swap(order[a], order[b]);
  } else {
    if (rank > 2)
      return Error(Diag::kRank, "operand 0 has {}, expected at most 2", Counted(rank, "dimension"));
    std::ranges::reverse(order);
  }
  return order;
}

Result<Types> PermuteShape(const OpArgs& args) {
  HEDDLE_TRY(std::vector<size_t> order, Permutation(args));
  Dims dims;
  for (size_t d : order) dims.push_back(args.dims(0)[d]);
  return Types{WithDims(args, std::move(dims))};
}

Result<Factors> PermuteFactors(const OpArgs& args, const Types&) {
  HEDDLE_TRY(std::vector<size_t> order, Permutation(args));
  Factors factors;
  factors.operands = {AddDims(factors, args[0], "d")};
  TensorFactors result;
  for (size_t d : order) result.push_back(factors.operands[0][d]);
  factors.results = {result};
  return factors;
}

// --- Dimensions of size 1

Result<Types> UnsqueezeShape(const OpArgs& args) {
  Dims dims = args.dims(0);
  HEDDLE_TRY(size_t dim, WrapDim(args.Int("dim"), dims.size() + 1));
  dims.insert(dims.begin() + static_cast<ptrdiff_t>(dim), 1);
  return Types{WithDims(args, std::move(dims))};
}

// Flags of the dimensions that are removed if they have size 1.
Result<std::vector<bool>> SqueezedDims(const OpArgs& args) {
  size_t rank = args[0].rank();
  std::vector<bool> flags(rank, true);
  if (const Arg* arg = args.op().schema.Find("dim"); arg != nullptr && arg->kind == ArgKind::kInt) {
    HEDDLE_TRY(size_t dim, DimAttr(args, rank));
    flags.assign(rank, false);
    if (rank > 0) flags[dim] = true;
  } else if (arg != nullptr && !args.Ints("dim").empty()) {
    HEDDLE_TRY(flags, DimFlags(args, rank));
  } else if (arg != nullptr) {
    flags.assign(rank, false);
  }
  return flags;
}

Result<Types> SqueezeShape(const OpArgs& args) {
  HEDDLE_TRY(std::vector<bool> flags, SqueezedDims(args));
  Dims dims;
  for (size_t d = 0; d < flags.size(); ++d) {
    if (!flags[d] || args.dims(0)[d] != 1) dims.push_back(args.dims(0)[d]);
  }
  return Types{WithDims(args, std::move(dims))};
}

// A dimension cannot be split if a rank's part might have size 1 and be removed.
Result<Factors> SqueezeFactors(const OpArgs& args, const Types& results) {
  HEDDLE_TRY(std::vector<bool> flags, SqueezedDims(args));
  HEDDLE_TRY(Factors factors, ReshapeFactors(args, results));
  for (size_t d = 0; d < flags.size(); ++d) {
    for (FactorId f : factors.operands[0][d]) {
      if (flags[d]) factors.factors[f].kind = FactorKind::kWhole;
    }
  }
  return factors;
}

Result<Types> ExpandShape(const OpArgs& args) {
  Dims size = args.Ints("size");
  const Dims& from = args.dims(0);
  if (size.size() < from.size())
    return Error(Diag::kRank, "operand 0 has {}, `size` has {}", Counted(from.size(), "dimension"),
                 size.size());
  size_t offset = size.size() - from.size();
  for (size_t d = 0; d < size.size(); ++d) {
    Dim have = d < offset ? 1 : from[d - offset];
    if (size[d] == -1 && d >= offset) size[d] = have;
    if (size[d] != have && have != 1) {
      return Error(Diag::kShapeMismatch, "size {} in dimension {} does not broadcast to {}",
                   DimText(args, have), d, DimText(args, size[d]));
    }
    if (size[d] < 0 && !IsSymbol(size[d]))
      return Error(Diag::kReshape, "size {} of dimension {} is negative", size[d], d);
  }
  return Types{WithDims(args, std::move(size))};
}

// --- Taking parts

// A hostile size must not allocate memory: no op has more results than this.
constexpr int64_t kMaxParts = 4096;

Result<Types> SliceShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRankAtLeast(args, 0, 1));
  Dims dims = args.dims(0);
  HEDDLE_TRY(size_t dim, DimAttr(args, dims.size()));
  HEDDLE_TRY(dims[dim], SlicedSize(args, dims[dim]));
  return Types{WithDims(args, std::move(dims))};
}

// All dimensions except `dim` carry over. `dim` cannot be split unless a slice takes all of it.
Result<Factors> OneDimFactors(const OpArgs& args, const Types& results) {
  size_t rank = args[0].rank();
  HEDDLE_TRY(size_t dim, DimAttr(args, rank));
  Factors factors;
  TensorFactors all = AddDims(factors, args[0], "d");
  auto fit = [&](const Type& type) {
    TensorFactors dims = all;
    if (type.rank() < rank) {
      dims.erase(dims.begin() + static_cast<ptrdiff_t>(dim));
    } else if (rank > 0 && type.dims[dim] != args.dims(0)[dim]) {
      dims[dim] = {factors.Add(fmt::format("n{}", factors.factors.size()), type.dims[dim],
                               FactorKind::kWhole)};
      factors.factors[dim].kind = FactorKind::kWhole;
    }
    return dims;
  };
  for (const Type& type : args.operands()) factors.operands.push_back(fit(type));
  for (const Type& type : results) factors.results.push_back(fit(type));
  // In other ops, sizes in attributes refer to the whole dimension.
  bool is_slice = args.op().schema.Find("step") != nullptr;
  if (rank > 0 && !is_slice) factors.factors[dim].kind = FactorKind::kWhole;
  return factors;
}

Result<Types> SelectShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRankAtLeast(args, 0, 1));
  Dims dims = args.dims(0);
  HEDDLE_TRY(size_t dim, DimAttr(args, dims.size()));
  int64_t index = args.Int("index");
  if (!IsSymbol(dims[dim]) && (index < -dims[dim] || index >= dims[dim])) {
    return Error(Diag::kSlice, "index {} is outside dimension {}, which has size {}", index, dim,
                 dims[dim]);
  }
  dims.erase(dims.begin() + static_cast<ptrdiff_t>(dim));
  return Types{WithDims(args, std::move(dims))};
}

Result<Types> SplitInto(const OpArgs& args, size_t dim, const std::vector<int64_t>& sizes) {
  Types results;
  for (int64_t size : sizes) {
    Dims dims = args.dims(0);
    dims[dim] = size;
    results.push_back(WithDims(args, std::move(dims)));
  }
  return results;
}

Result<Types> SplitShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRankAtLeast(args, 0, 1));
  HEDDLE_TRY(size_t dim, DimAttr(args, args[0].rank()));
  int64_t size = args.dims(0)[dim];
  int64_t part = args.Int("split_size");
  if (IsSymbol(size))
    return Error(Diag::kSymbolicSize,
                 "a dimension of size {} cannot be split; the number of parts would not be known",
                 DimText(args, size));
  if (part < 0 || (part == 0 && size != 0))
    return Error(Diag::kSlice, "`split_size` is {} for a dimension of size {}", part, size);
  if (part > 0 && size / part > kMaxParts)
    return Error(Diag::kSlice, "`split_size` {} gives {} parts of a dimension; the maximum is {}",
                 part, size / part, kMaxParts);
  std::vector<int64_t> sizes;
  for (int64_t left = size; left > 0 && part > 0; left -= part)
    sizes.push_back(std::min(part, left));
  if (sizes.empty()) sizes.push_back(size);
  return SplitInto(args, dim, sizes);
}

Result<Types> SplitWithSizesShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRankAtLeast(args, 0, 1));
  HEDDLE_TRY(size_t dim, DimAttr(args, args[0].rank()));
  const std::vector<int64_t>& sizes = args.Ints("split_sizes");
  HEDDLE_TRY(int64_t size, NumElements(args, {args.dims(0)[dim]}));
  int64_t sum = 0;
  for (int64_t part : sizes) {
    if (part < 0 || __builtin_add_overflow(sum, part, &sum))
      return Error(Diag::kSlice,
                   "`split_sizes` has {}, which is negative or makes the sum exceed 2^63 - 1",
                   part);
  }
  if (sum != size)
    return Error(Diag::kSlice, "`split_sizes` add up to {}, but dimension {} is {}", sum, dim,
                 size);
  return SplitInto(args, dim, sizes);
}

Result<Types> UnbindShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRankAtLeast(args, 0, 1));
  HEDDLE_TRY(size_t dim, DimAttr(args, args[0].rank()));
  HEDDLE_TRY(int64_t size, NumElements(args, {args.dims(0)[dim]}));
  if (size > kMaxParts)
    return Error(Diag::kSlice, "dimension {} has size {}; the maximum is {} parts", dim, size,
                 kMaxParts);
  Dims dims = args.dims(0);
  dims.erase(dims.begin() + static_cast<ptrdiff_t>(dim));
  return Types(static_cast<size_t>(size), WithDims(args, std::move(dims)));
}

// --- Complex numbers as pairs

Result<Types> AsComplexShape(const OpArgs& args) {
  HEDDLE_RETURN_IF_ERROR(CheckRankAtLeast(args, 0, 1));
  if (!IsFloat(args.dtype(0)) || args.dims(0).back() != 2) {
    return Error(Diag::kShapeMismatch,
                 "operand 0 is {}{}, expected pairs of floats in the last dimension",
                 Name(args.dtype(0)), DimsText(args, args.dims(0)));
  }
  Dims dims = args.dims(0);
  dims.pop_back();
  return Types{Type::Tensor(ToComplex(args.dtype(0)), std::move(dims))};
}

Result<Types> AsRealShape(const OpArgs& args) {
  if (!IsComplex(args.dtype(0)))
    return Error(Diag::kDTypeMismatch, "operand 0 is {}, expected complex numbers",
                 Name(args.dtype(0)));
  Dims dims = args.dims(0);
  dims.push_back(2);
  return Types{Type::Tensor(ToReal(args.dtype(0)), std::move(dims))};
}

Result<Factors> PairFactors(const OpArgs& args, const Types& results) {
  Factors factors;
  const Type& pairs = args[0].rank() > results[0].rank() ? args[0] : results[0];
  TensorFactors all = AddDims(factors, pairs, "d");
  factors.factors.back().kind = FactorKind::kWhole;
  TensorFactors rest(all.begin(), all.end() - 1);
  bool from_pairs = args[0].rank() > results[0].rank();
  factors.operands = {from_pairs ? all : rest};
  factors.results = {from_pairs ? rest : all};
  return factors;
}

constexpr OpDef ViewOp(std::string_view schema, ShapeFn shape, FactorsFn factors,
                       std::string_view example, std::string_view shape_attr = "") {
  return {.schema = schema,
          .shape = shape,
          .factors = {.compute = factors, .linear = "0"},
          .effect = Effect::kView,
          .shape_attr = shape_attr,
          .example = example};
}
}  // namespace

HEDDLE_DEFINE_OP(view)
ViewOp("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", ViewShape, ReshapeFactors,
       "(f32[4,6,8], size=[24,2,4])", "size");
HEDDLE_DEFINE_OP(reshape)
ViewOp("aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)", ReshapeShape, ReshapeFactors,
       "(f32[4,6], shape=[2,-1])", "shape");
HEDDLE_DEFINE_OP(_unsafe_view)
ViewOp("aten::_unsafe_view(Tensor self, SymInt[] size) -> Tensor", ViewShape, ReshapeFactors,
       "(f32[24,8], size=[4,6,8])", "size");
HEDDLE_DEFINE_OP(view_dtype){
    .schema = "aten::view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)",
    .shape = ViewDTypeShape,
    .factors = {.compute = UnchangedDimsFactors},
    .effect = Effect::kView,
    .example = "(f32[4,6], dtype=i32)",
};
HEDDLE_DEFINE_OP(t)
ViewOp("aten::t(Tensor(a) self) -> Tensor(a)", PermuteShape, PermuteFactors, "(f32[4,6])");
HEDDLE_DEFINE_OP(transpose_int)
ViewOp("aten::transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)", PermuteShape,
       PermuteFactors, "(f32[2,4,6], dim0=1, dim1=-1)");
HEDDLE_DEFINE_OP(permute)
ViewOp("aten::permute(Tensor(a) self, int[] dims) -> Tensor(a)", PermuteShape, PermuteFactors,
       "(f32[2,4,6], dims=[2,0,1])");
HEDDLE_DEFINE_OP(expand)
ViewOp("aten::expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)",
       ExpandShape, PointwiseFactors, "(f32[4,1], size=[3,4,6])", "size");
HEDDLE_DEFINE_OP(unsqueeze)
ViewOp("aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)", UnsqueezeShape, ReshapeFactors,
       "(f32[4,6], dim=1)");
HEDDLE_DEFINE_OP(squeeze)
ViewOp("aten::squeeze(Tensor(a) self) -> Tensor(a)", SqueezeShape, SqueezeFactors, "(f32[4,1,6])");
HEDDLE_DEFINE_OP(squeeze_dim)
ViewOp("aten::squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)", SqueezeShape, SqueezeFactors,
       "(f32[4,1,6], dim=1)");
HEDDLE_DEFINE_OP(squeeze_dims)
ViewOp("aten::squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)", SqueezeShape, SqueezeFactors,
       "(f32[1,4,1,6], dim=[0,2])");
HEDDLE_DEFINE_OP(select_int)
ViewOp("aten::select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)", SelectShape,
       OneDimFactors, "(f32[4,6], dim=1, index=-2)");
HEDDLE_DEFINE_OP(slice_Tensor)
ViewOp(
    "aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt "
    "step=1) -> Tensor(a)",
    SliceShape, OneDimFactors, "(f32[4,6], dim=1, start=1, end=-1, step=2)");
HEDDLE_DEFINE_OP(split_Tensor)
ViewOp("aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]",
       SplitShape, OneDimFactors, "(f32[4,7], split_size=3, dim=1)");
HEDDLE_DEFINE_OP(split_with_sizes)
ViewOp(
    "aten::split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]",
    SplitWithSizesShape, OneDimFactors, "(f32[4,6], split_sizes=[1,5], dim=1)");
HEDDLE_DEFINE_OP(unbind_int)
ViewOp("aten::unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]", UnbindShape,
       OneDimFactors, "(f32[4,2,6], dim=1)");
HEDDLE_DEFINE_OP(alias)
ViewOp("aten::alias(Tensor(a) self) -> Tensor(a)", SameType, PointwiseFactors, "(f32[4,6])");
HEDDLE_DEFINE_OP(detach)
ViewOp("aten::detach(Tensor(a) self) -> Tensor(a)", SameType, PointwiseFactors, "(f32[4,6])");
HEDDLE_DEFINE_OP(lift_fresh)
ViewOp("aten::lift_fresh(Tensor(a) self) -> Tensor(a)", SameType, PointwiseFactors, "(f32[4,6])");
HEDDLE_DEFINE_OP(view_as_complex)
ViewOp("aten::view_as_complex(Tensor(a) self) -> Tensor(a)", AsComplexShape, PairFactors,
       "(f32[4,6,2])");
HEDDLE_DEFINE_OP(view_as_real)
ViewOp("aten::view_as_real(Tensor(a) self) -> Tensor(a)", AsRealShape, PairFactors, "(c64[4,6])");
HEDDLE_DEFINE_OP(_conj)
ViewOp("aten::_conj(Tensor(a) self) -> Tensor(a)", SameType, PointwiseFactors, "(c64[4,6])");

}  // namespace heddle
