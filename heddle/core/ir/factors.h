// Factors: the loops of an op, named like the letters of an einsum. All sharding follows from them.
//
// `(m k, k n) -> (m n) reduce{k} linear{0|1}` says of a matrix product: splitting `m` or `n` over a mesh axis splits the
// operands and results that have it; splitting `k` makes the result partial; the op is linear in operand 0 and in
// operand 1, each while the other is whole, so a partial operand gives a partial result.
//
// `local{t}`, `masked{v}`, `nonempty{s}` and `unread{0}`: see Factor::local, Factor::masked, Factor::nonempty and
// Factors::unread.
//
// A dimension may be made of several factors, the outermost first: `(b s)` is a dimension that merges two. An operand
// without a factor is replicated over an axis that splits it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/placement.h"
#include "heddle/core/ir/type.h"

namespace heddle {

enum class FactorKind : uint8_t {
  // Results that have it are split with it; results that lack it are the same on every rank.
  kKeep,
  // Results that lack it are partial.
  kReduce,
  // Cannot be split.
  kWhole,
};

struct Factor {
  std::string name;
  Dim size;
  FactorKind kind = FactorKind::kKeep;
  // For kReduce: how the parts combine.
  ReduceOp reduce = ReduceOp::kSum;
  // Whole, but a region that a plan calls local may split it: each rank then works on its own part alone. A sort of tokens
  // by expert is such a loop, if what follows undoes it.
  bool local = false;
  // Positions along it are looked up by number: a rank that has a part of them shifts the numbers and leaves out those of
  // other ranks. No part may be empty.
  bool masked = false;
  // Kernels of the op do not take an empty part of it.
  bool nonempty = false;

  // Whether ranks may be left without a part. A maximum of nothing is no number.
  bool may_be_empty() const {
    bool has_neutral = kind != FactorKind::kReduce || reduce == ReduceOp::kSum;
    return !masked && !nonempty && has_neutral;
  }
};

using FactorId = uint32_t;
// The factors of one dimension, outermost first; none for a dimension of size 1 that is stretched to others.
using DimFactors = std::vector<FactorId>;
using TensorFactors = std::vector<DimFactors>;

struct Factors {
  std::vector<Factor> factors;
  // By flat operand and result; an absent or undefined one has no dimensions.
  std::vector<TensorFactors> operands;
  std::vector<TensorFactors> results;
  // Groups of operands: the op is linear in the operands of one group together, the others held fixed.
  std::vector<std::vector<uint32_t>> linear;
  // Operands of which only the type is read: pending reductions on them do not matter, nor splits of dimensions without
  // factors.
  std::vector<uint32_t> unread;
  // Over an axis that splits every operand, each in one of its own loops, the result is a pending sum. The loops are not split
  // one by one: parts of one operand and all of another have no meaning together.
  bool sums_parts = false;

  // Adds a factor that no tensor has yet.
  FactorId Add(std::string name, Dim size, FactorKind kind = FactorKind::kKeep,
               ReduceOp reduce = ReduceOp::kSum);
};

// Works out the factors of a rule in text for given operand and result types.
Result<Factors> FactorsFromText(std::string_view rule, const std::vector<Type>& operands,
                                const std::vector<Type>& results);
// Adds the groups of `linear{0+1|2}` to `factors`: `+` joins operands of one group, `|` separates groups.
void AddLinear(Factors& factors, std::string_view groups);
// The rule as text.
std::string Format(const Factors& factors);

}  // namespace heddle
