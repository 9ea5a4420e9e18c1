#include "heddle/compile/shard/axis_choice.h"

#include <algorithm>

namespace heddle::compile {

bool AxisChoices::IsUnread(size_t operand) const {
  return std::ranges::find(factors_.unread, operand) != factors_.unread.end();
}

AxisState AxisChoices::Needed(size_t operand, const Choice& choice) const {
  if (choice.kind == Choice::Kind::kSplit) {
    std::optional<size_t> dim = DimWith(factors_.operands[operand], choice.index);
    if (dim) return {AxisUse::kSplit, *dim, ReduceOp::kSum};
  }
  if (choice.kind == Choice::Kind::kLinear) {
    const auto& group = factors_.linear[choice.index];
    if (std::ranges::find(group, operand) != group.end())
      return {AxisUse::kPartial, 0, ReduceOp::kSum};
  }
  return {};
}

AxisState AxisChoices::Made(size_t result, const Choice& choice) const {
  if (choice.kind == Choice::Kind::kLinear) return {AxisUse::kPartial, 0, ReduceOp::kSum};
  if (choice.kind == Choice::Kind::kReplicate) return {};
  std::optional<size_t> dim = DimWith(factors_.results[result], choice.index);
  if (dim) return {AxisUse::kSplit, *dim, ReduceOp::kSum};
  const Factor& factor = factors_.factors[choice.index];
  if (factor.kind == FactorKind::kReduce) return {AxisUse::kPartial, 0, factor.reduce};
  return {};
}

std::optional<int64_t> AxisChoices::Cost(size_t i, AxisId axis, const Choice& choice) const {
  const OperandState& operand = request_.operands[i];
  if (operand.type->is_none()) return 0;
  AxisState need = Needed(i, choice);
  if (operand.is_free) {
    return need.use == AxisUse::kPartial && !operand.is_zero ? std::nullopt
                                                             : std::optional<int64_t>(0);
  }
  AxisState have = StateOn(operand.placement, axis);
  if (have == need) return 0;
  if (IsUnread(i) && (have.use == AxisUse::kPartial || !HasFactors(i, have.dim))) return 0;
  if (need.use == AxisUse::kPartial) {
    // A number becomes pending if all ranks except the first zero it. That moves no bytes, but
    // should be avoided.
    bool forgets = have.use == AxisUse::kReplicated && IsOneElement(operand.type->dims);
    return forgets ? std::optional<int64_t>(1) : std::nullopt;
  }
  if (have.use == AxisUse::kReplicated) return 0;
  int64_t bytes = PartBytes(i, axis);
  int64_t ranks = mesh_[axis].size;
  int64_t share = bytes - bytes / ranks;
  if (need.use == AxisUse::kReplicated) return have.use == AxisUse::kPartial ? 2 * share : share;
  return have.use == AxisUse::kPartial ? share : std::max<int64_t>(share / ranks, 1);
}
bool AxisChoices::HasFactors(size_t operand, size_t dim) const {
  return dim < factors_.operands[operand].size() && !factors_.operands[operand][dim].empty();
}

int64_t AxisChoices::PartBytes(size_t i, AxisId axis) const {
  const OperandState& operand = request_.operands[i];
  int64_t bytes = ItemSize(operand.type->dtype);
  for (size_t d = 0; d < operand.type->rank(); ++d) {
    int64_t size = IsSymbol(operand.type->dims[d]) ? 1 : operand.type->dims[d];
    for (AxisId a : operand.placement.split(d)) {
      if (a != axis) size = (size + mesh_[a].size - 1) / mesh_[a].size;
    }
    if (__builtin_mul_overflow(bytes, size, &bytes)) return INT64_MAX / 1024;
  }
  return std::min(bytes, INT64_MAX / 1024);
}

}  // namespace heddle::compile
