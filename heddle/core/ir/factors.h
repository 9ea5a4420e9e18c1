// Factors: the loops of an op, named like the letters of an einsum. Sharding derives from them.
//
// For a matrix product, `(m k, k n) -> (m n) reduce{k} linear{0|1}` means: splitting `m` or `n`
// over a mesh axis splits the operands and results that have it. Splitting `k` makes the result
// partial. The op is linear in operand 0 and in operand 1 separately, so a partial operand gives a
// partial result.
//
// `local{t}`, `masked{v}`, `counted{s}`, `nonempty{s}` and `unread{0}`: see Factor::local,
// Factor::masked, Factor::counted, Factor::nonempty and Factors::unread.
//
// A dimension may have several factors, the outermost first: `(b s)` merges two. An operand without
// a factor is replicated over an axis that splits it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/placement.h"
#include "heddle/core/ir/type.h"

namespace heddle {

// The effect of splitting a factor.
enum class FactorKind : uint8_t {
  // Results with this factor are split with it; results without it are the same on every rank.
  kKeep,
  // Results without this factor are partial.
  kReduce,
  // Cannot be split.
  kWhole,
};

// One loop of an op.
struct Factor {
  std::string name;
  Dim size;
  FactorKind kind = FactorKind::kKeep;
  // For kReduce: how partial results combine.
  ReduceOp reduce = ReduceOp::kSum;
  // Like kWhole, but a region that a plan declares local may split it; each rank then works on its
  // own part. An example is a sort of tokens by expert that later ops undo.
  bool local = false;
  // Positions along this factor are looked up by number. A rank with a part of them shifts the
  // numbers and ignores those of other ranks. No part may be empty.
  bool masked = false;
  // The op depends on positions along this factor, like a causal mask. A rank with a part of them
  // runs an op that knows where its part begins. All parts have the same size.
  bool counted = false;
  // The op's kernels do not accept an empty part of it.
  bool nonempty = false;

  // Whether ranks may have an empty part. The maximum of an empty set is undefined.
  bool may_be_empty() const {
    bool has_neutral = kind != FactorKind::kReduce || reduce == ReduceOp::kSum;
    return !masked && !counted && !nonempty && has_neutral;
  }
};

using FactorId = uint32_t;
// The factors of one dimension, outermost first. Empty for a dimension of size 1 that is broadcast.
using DimFactors = std::vector<FactorId>;
using TensorFactors = std::vector<DimFactors>;

// The factors of one call.
struct Factors {
  std::vector<Factor> factors;
  // Indexed by flat operand and result. An absent or undefined one has no dimensions.
  std::vector<TensorFactors> operands;
  std::vector<TensorFactors> results;
  // Groups of operands: the op is linear in the operands of a group together, with the others
  // fixed.
  std::vector<std::vector<uint32_t>> linear;
  // Operands of which only the type is read. Pending reductions on them do not matter, nor splits
  // of dimensions without factors.
  std::vector<uint32_t> unread;
  // Over an axis that splits every operand, each in one of its own loops, the result is a pending
  // sum. The loops are not split individually: a part of one operand with all of another has no
  // meaning.
  bool sums_parts = false;

  // Adds a factor that no tensor has yet.
  FactorId Add(std::string name, Dim size, FactorKind kind = FactorKind::kKeep,
               ReduceOp reduce = ReduceOp::kSum);
};

// The factors of a textual rule for given operand and result types.
Result<Factors> FactorsFromText(std::string_view rule, const std::vector<Type>& operands,
                                const std::vector<Type>& results);
// Adds the groups of `linear{0+1|2}` to `factors`: `+` joins operands of one group, `|` separates
// groups.
void AddLinear(Factors& factors, std::string_view groups);
// The rule as text.
std::string Format(const Factors& factors);

}  // namespace heddle
