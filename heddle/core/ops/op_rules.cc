#include "heddle/core/ops/op_rules.h"

#include <algorithm>

#include "heddle/core/base/text.h"
#include "heddle/core/ir/attrs.h"

namespace heddle {

Result<size_t> WrapDim(int64_t dim, size_t rank) {
  auto n = static_cast<int64_t>(std::max<size_t>(rank, 1));
  if (dim < -n || dim >= n) {
    return Error(Diag::kDimRange, "dimension {} does not exist; the tensor has {}", dim,
                 Counted(rank, "dimension"));
  }
  return static_cast<size_t>(dim < 0 ? dim + n : dim);
}

Result<size_t> DimAttr(const OpArgs& args, size_t rank, std::string_view name) {
  return WrapDim(args.Int(name), rank);
}

Result<std::vector<bool>> DimFlags(const OpArgs& args, size_t rank, std::string_view name) {
  const std::vector<int64_t>& dims = args.Ints(name);
  std::vector<bool> flags(rank, dims.empty());
  for (int64_t dim : dims) {
    HEDDLE_TRY(size_t d, WrapDim(dim, rank));
    if (rank == 0) continue;
    if (flags[d]) return Error(Diag::kDimRange, "dimension {} occurs twice in `{}`", d, name);
    flags[d] = true;
  }
  return flags;
}

Status CheckOver(const OpArgs& args) {
  Axes over = args.AxesOf("over");
  if (over.empty())
    return Error(Diag::kUnknownAxis, "`over` is empty; name at least one mesh axis");
  for (AxisId axis : over) {
    if (axis >= args.mesh().axes().size())
      return Error(Diag::kUnknownAxis, "`over` has axis {}, but the mesh has {} axes", axis,
                   args.mesh().axes().size());
  }
  return Done{};
}

Status CheckRank(const OpArgs& args, size_t i, size_t rank) {
  if (args[i].rank() == rank) return Done{};
  return Error(Diag::kRank, "operand {} has {}, expected {}", i,
               Counted(args[i].rank(), "dimension"), rank);
}

Status CheckRankAtLeast(const OpArgs& args, size_t i, size_t rank) {
  if (args[i].rank() >= rank) return Done{};
  return Error(Diag::kRank, "operand {} has {}, expected at least {}", i,
               Counted(args[i].rank(), "dimension"), rank);
}

Status CheckSame(const OpArgs& args, std::string_view what, Dim a, Dim b) {
  if (a == b) return Done{};
  return Error(Diag::kShapeMismatch, "{}: {} and {}", what, DimText(args, a), DimText(args, b));
}

Result<Dims> Broadcast(const OpArgs& args, size_t first, size_t last) {
  last = std::min(last, args.size());
  Dims dims;
  for (size_t i = first; i < last; ++i) {
    if (!args.has(i)) continue;
    const Dims& other = args.dims(i);
    if (other.size() > dims.size()) dims.insert(dims.begin(), other.size() - dims.size(), 1);
    size_t offset = dims.size() - other.size();
    for (size_t d = 0; d < other.size(); ++d) {
      Dim& size = dims[offset + d];
      if (size == other[d] || other[d] == 1) continue;
      if (size != 1) {
        return Error(Diag::kShapeMismatch,
                     "operand {} has size {} in dimension {}, which does not broadcast to {}", i,
                     DimText(args, other[d]), d, DimText(args, size));
      }
      size = other[d];
    }
  }
  return dims;
}

Result<int64_t> NumElements(const OpArgs& args, const Dims& dims) {
  int64_t count = 1;
  for (Dim dim : dims) {
    if (IsSymbol(dim))
      return Error(Diag::kSymbolicSize,
                   "the number of elements depends on {}, which is known only at run time",
                   DimText(args, dim));
    if (__builtin_mul_overflow(count, dim, &count))
      return Error(Diag::kSizeOverflow, "the number of elements exceeds 2^63 - 1");
  }
  return count;
}

Result<Dim> SlicedSize(const OpArgs& args, Dim size) {
  int64_t step = args.Int("step");
  if (step < 1) return Error(Diag::kSlice, "step {} is not positive", step);
  if (IsSymbol(size)) {
    // `end` refers to the whole dimension, of which this may be a part.
    int64_t most = args.symbols().Bound(size);
    int64_t start = args.IntOr("start", 0);
    int64_t end = args.IntOr("end", INT64_MAX);
    bool from_start = start == 0 || (start < 0 && !IsSymbol(start) && -start >= most);
    bool to_end = end == size || end >= most;
    if (from_start && to_end && step == 1) return size;
    return Error(
        Diag::kSymbolicSize,
        "a dimension of size {} cannot be sliced; the size of the slice would not be known",
        DimText(args, size));
  }
  if (int64_t end = args.IntOr("end", size); IsSymbol(end)) {
    // The first elements, as many as this rank has of another tensor.
    if (args.IntOr("start", 0) == 0 && step == 1 && args.symbols().Bound(end) <= size) return end;
    return Error(
        Diag::kSymbolicSize,
        "a slice of {} elements cannot end at {}; it would have to begin at 0, with step 1", size,
        DimText(args, end));
  }
  auto position = [&](std::string_view name, int64_t otherwise) {
    int64_t at = args.IntOr(name, otherwise);
    if (at < 0) at += size;
    return std::clamp<int64_t>(at, 0, size);
  };
  int64_t begin = position("start", 0);
  int64_t end = std::max(begin, position("end", size));
  return (end - begin) / step + ((end - begin) % step != 0);
}

Result<Types> SameType(const OpArgs& args) { return Types{args[0]}; }

Type WithDims(const OpArgs& args, Dims dims) {
  return Type::Tensor(args.dtype(0), std::move(dims), args[0].space);
}

std::string DimText(const OpArgs& args, Dim dim) {
  std::string text;
  AppendDim(text, dim, args.mesh(), args.symbols());
  return text;
}

std::string DimsText(const OpArgs& args, const Dims& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i != 0) text += ',';
    text += DimText(args, dims[i]);
  }
  return text + "]";
}

DType NumberDType(const AttrValue& value) {
  if (std::holds_alternative<bool>(value)) return DType::kBool;
  if (std::holds_alternative<int64_t>(value)) return DType::kI64;
  if (std::holds_alternative<double>(value)) return DType::kF32;
  if (std::holds_alternative<std::complex<double>>(value)) return DType::kC64;
  return DType::kNone;
}

namespace {

// ATen's rule: a participant of lower priority changes the category of the result, but not the
// width within it.
DType CombineCategories(DType higher, DType lower) {
  if (higher == DType::kNone) return lower;
  if (lower == DType::kNone || IsComplex(higher)) return higher;
  if (IsFloat(higher)) return IsComplex(lower) ? ToComplex(higher) : higher;
  if (higher == DType::kBool || IsFloat(lower) || IsComplex(lower)) return Promote(higher, lower);
  return higher;
}

}  // namespace

DType PromotedDType(const OpArgs& args, size_t first, size_t last) {
  DType with_dims = DType::kNone;
  DType scalars = DType::kNone;
  DType numbers = DType::kNone;
  for (size_t i = first; i < std::min(last, args.size()); ++i) {
    if (!args.has(i)) continue;
    DType& rank = args[i].rank() == 0 ? scalars : with_dims;
    rank = Promote(rank, args.dtype(i));
  }
  for (const Arg& arg : args.op().schema.args) {
    // Factors and fill values adapt to the tensors. Other numbers take part in the promotion.
    bool adapts = arg.name == "alpha" || arg.name == "beta" || arg.name == "value" ||
                  arg.name == "threshold" || arg.name == "negative_slope" || arg.name == "weight";
    if (arg.kind == ArgKind::kScalar && !adapts)
      numbers = Promote(numbers, NumberDType(args.attr(arg.name)));
  }
  return CombineCategories(with_dims, CombineCategories(scalars, numbers));
}

bool CastKeepsSums(DType from, DType to) {
  if (from == to) return true;
  return to != DType::kBool && (!IsInteger(to) || IsInteger(from));
}

TensorFactors AddDims(Factors& factors, const Type& type, std::string_view prefix,
                      FactorKind kind) {
  TensorFactors dims;
  for (size_t d = 0; d < type.rank(); ++d) {
    dims.push_back({factors.Add(fmt::format("{}{}", prefix, d), type.dims[d], kind)});
  }
  return dims;
}

namespace {
// The factors of a tensor that is broadcast to `result`, whose dimensions are the first factors.
TensorFactors Aligned(const Type& type, const Type& result) {
  TensorFactors dims(type.rank());
  if (type.rank() > result.rank()) return dims;
  size_t offset = result.rank() - type.rank();
  for (size_t d = 0; d < type.rank(); ++d) {
    if (type.dims[d] == result.dims[offset + d]) dims[d] = {static_cast<FactorId>(offset + d)};
  }
  return dims;
}
}  // namespace

Result<Factors> PointwiseFactors(const OpArgs& args, const Types& results) {
  Factors factors;
  TensorFactors all = AddDims(factors, results[0], "d");
  for (const Type& operand : args.operands())
    factors.operands.push_back(Aligned(operand, results[0]));
  for (const Type& result : results) factors.results.push_back(Aligned(result, results[0]));
  return factors;
}

Factors SameDimsFactors(const OpArgs& args, const Types& results, const std::vector<bool>& whole) {
  Factors factors;
  TensorFactors all = AddDims(factors, args[0], "d");
  for (size_t d = 0; d < whole.size() && d < all.size(); ++d) {
    if (whole[d]) factors.factors[d].kind = FactorKind::kWhole;
  }
  auto fit = [&](const Type& type) {
    TensorFactors dims(type.rank());
    if (type.rank() == all.size()) {
      for (size_t d = 0; d < all.size(); ++d) {
        if (type.dims[d] == args.dims(0)[d]) dims[d] = all[d];
      }
    }
    return dims;
  };
  for (const Type& type : args.operands()) factors.operands.push_back(fit(type));
  for (const Type& type : results) factors.results.push_back(fit(type));
  return factors;
}

Result<Factors> UnchangedDimsFactors(const OpArgs& args, const Types& results) {
  Factors factors;
  TensorFactors in = AddDims(factors, args[0], "d");
  TensorFactors out(results[0].rank());
  size_t offset = out.size() - in.size();
  for (size_t d = 0; d < out.size(); ++d) {
    bool same = d >= offset && results[0].dims[d] == args.dims(0)[d - offset];
    if (same) {
      out[d] = in[d - offset];
      continue;
    }
    if (d >= offset) factors.factors[in[d - offset][0]].kind = FactorKind::kWhole;
    out[d] = {factors.Add(fmt::format("n{}", d), results[0].dims[d], FactorKind::kWhole)};
  }
  factors.operands = {in};
  factors.results = {out};
  return factors;
}

Result<Factors> WholeFactors(const OpArgs& args, const Types& results) {
  Factors factors;
  for (size_t i = 0; i < args.size(); ++i) {
    factors.operands.push_back(
        AddDims(factors, args[i], fmt::format("o{}_", i), FactorKind::kWhole));
  }
  for (size_t i = 0; i < results.size(); ++i) {
    factors.results.push_back(
        AddDims(factors, results[i], fmt::format("r{}_", i), FactorKind::kWhole));
  }
  return factors;
}

namespace {

// Walks two shapes of equal size from the left, and pairs runs of dimensions with equal products.
class ReshapeRefiner {
 public:
  ReshapeRefiner(const Dims& from, const Dims& to)
      : from_(from), to_(to), in_(from.size()), out_(to.size()) {}

  Factors Run() {
    size_t i = 0;
    size_t j = 0;
    while (i < from_.size() || j < to_.size()) {
      // Dimensions of size 1 have no factors, because they cannot be split.
      if (i < from_.size() && from_[i] == 1) {
        ++i;
      } else if (j < to_.size() && to_[j] == 1) {
        ++j;
      } else if (i == from_.size() || j == to_.size()) {
        break;
      } else if (from_[i] == to_[j]) {
        FactorId id = Add(from_[i], FactorKind::kKeep);
        in_[i++] = {id};
        out_[j++] = {id};
      } else if (!Refine(i, j)) {
        break;
      }
    }
    // Unpaired dimensions, which only empty tensors have, cannot be split.
    for (; i < from_.size(); ++i) in_[i] = {Add(from_[i], FactorKind::kWhole)};
    for (; j < to_.size(); ++j) out_[j] = {Add(to_[j], FactorKind::kWhole)};
    factors_.operands = {in_};
    factors_.results = {out_};
    return std::move(factors_);
  }

 private:
  FactorId Add(Dim size, FactorKind kind) {
    return factors_.Add(fmt::format("f{}", factors_.factors.size()), size, kind);
  }

  // Takes a run with the same product from each side, and refines both to common factors.
  bool Refine(size_t& i, size_t& j) {
    size_t i_end = i;
    size_t j_end = j;
    int64_t in = 1;
    int64_t out = 1;
    do {
      if (in <= out) {
        if (i_end == from_.size() || IsSymbol(from_[i_end]) || from_[i_end] == 0) return false;
        in *= from_[i_end++];
      } else {
        if (j_end == to_.size() || IsSymbol(to_[j_end]) || to_[j_end] == 0) return false;
        out *= to_[j_end++];
      }
    } while (in != out || j_end == j);
    // From left to right, the next factor is the smaller of the two remaining sizes, if it divides
    // the larger one.
    int64_t left_in = from_[i];
    int64_t left_out = to_[j];
    bool whole = !Divides(i, i_end, j, j_end);
    while (i < i_end && j < j_end) {
      if (whole) {
        while (i < i_end) in_[i] = {Add(from_[i], FactorKind::kWhole)}, ++i;
        while (j < j_end) out_[j] = {Add(to_[j], FactorKind::kWhole)}, ++j;
        return true;
      }
      int64_t size = std::min(left_in, left_out);
      FactorId id = Add(size, FactorKind::kKeep);
      in_[i].push_back(id);
      out_[j].push_back(id);
      left_in /= size;
      left_out /= size;
      if (left_in == 1 && ++i < i_end) left_in = from_[i];
      if (left_out == 1 && ++j < j_end) left_out = to_[j];
    }
    while (i < i_end) ++i;
    while (j < j_end) ++j;
    return true;
  }

  // Whether each factor of the refinement above divides the remaining size.
  bool Divides(size_t i, size_t i_end, size_t j, size_t j_end) const {
    int64_t left_in = from_[i];
    int64_t left_out = to_[j];
    while (i < i_end && j < j_end) {
      int64_t size = std::min(left_in, left_out);
      if (left_in % size != 0 || left_out % size != 0) return false;
      left_in /= size;
      left_out /= size;
      if (left_in == 1 && ++i < i_end) left_in = from_[i];
      if (left_out == 1 && ++j < j_end) left_out = to_[j];
    }
    return true;
  }

  const Dims& from_;
  const Dims& to_;
  Factors factors_;
  TensorFactors in_;
  TensorFactors out_;
};

}  // namespace

Result<Factors> ReshapeFactors(const OpArgs& args, const Types& results) {
  return ReshapeRefiner(args.dims(0), results[0].dims).Run();
}

Bytes BytesOf(const OpArgs& args, const Type& type) {
  return {CheckedBytes(args.symbols(), type.dims, type.dtype).value_or(0)};
}

Work NoWork(const OpArgs&, const Types&) { return {}; }

Work WorkOf(const OpArgs& args, const Types& results, int64_t flops) {
  Work work;
  work.flops = {flops};
  for (const Type& type : args.operands()) work.read += BytesOf(args, type);
  for (const Type& type : results) work.written += BytesOf(args, type);
  return work;
}

int64_t BoundedProduct(const OpArgs& args, std::initializer_list<Dim> dims) {
  int64_t product = 1;
  for (Dim dim : dims) {
    if (__builtin_mul_overflow(product, args.symbols().Bound(dim), &product)) return INT64_MAX;
  }
  return product;
}

int64_t BoundedElements(const OpArgs& args, const Type& type) {
  return type.is_none() ? 0 : BytesOf(args, type).value / ItemSize(type.dtype);
}

}  // namespace heddle
