#include "heddle/compile/shard/placement_word.h"

namespace heddle::compile {

static_assert(Mesh::kMaxAxes <= 7 && kReduceOpCount < 8, "an axis has a byte");

std::optional<PlacementWord> WordOf(const Placement& placement) {
  if (placement.splits.size() > AxisByte::kMostDims) return std::nullopt;
  PlacementWord word = 0;
  for (size_t d = 0; d < placement.splits.size(); ++d) {
    const Axes& axes = placement.splits[d];
    for (size_t i = 0; i < axes.size(); ++i) word |= AtAxis(axes[i], AxisByte::Split(d, i));
  }
  for (const Partial& partial : placement.partials)
    word |= AtAxis(partial.axis, AxisByte::Pending(partial.op));
  return word;
}

DimAxesOfWord::DimAxesOfWord(PlacementWord word) {
  for (AxisId axis = 0; word != 0; ++axis, word >>= 8) {
    AxisByte use = ByteOf(word, 0);
    if (!use.splits()) continue;
    axes[use.dim()][use.place()] = axis;
    ++counts[use.dim()];
  }
}

CommonOfWords::CommonOfWords(PlacementWord a, PlacementWord b) {
  PlacementWord before = 0;
  // An axis is common only if all axes outside it are. Checks one position of all dimensions at a
  // time.
  do {
    before = common;
    for (AxisId axis = 0; axis < Mesh::kMaxAxes; ++axis) {
      AxisByte use = ByteOf(a, axis);
      if (use.byte != ByteOf(b, axis).byte || use.replicated()) continue;
      if (use.splits() && use.place() == prefix[use.dim()]) {
        common |= AtAxis(axis, use.byte);
        ++prefix[use.dim()];
      } else if (use.pending()) {
        common |= AtAxis(axis, use.byte);
      }
    }
  } while (common != before);
}

PlacementWord CommonOfWords::RemovedFrom(PlacementWord word) const {
  PlacementWord out = 0;
  for (AxisId axis = 0; axis < Mesh::kMaxAxes; ++axis) {
    AxisByte use = ByteOf(word, axis);
    if (use.byte == ByteOf(common, axis).byte) continue;
    out |= AtAxis(axis, use.splits() ? use.byte - prefix[use.dim()] : use.byte);
  }
  return out;
}

Placement PlacementOf(PlacementWord word, size_t rank) {
  Placement placement;
  placement.splits.resize(rank);
  DimAxesOfWord dims(word);
  for (size_t d = 0; d < rank; ++d) {
    for (size_t i = 0; i < dims.counts[d]; ++i) placement.splits[d].Add(dims.axes[d][i]);
  }
  for (AxisId axis = 0; axis < Mesh::kMaxAxes; ++axis) {
    AxisByte use = ByteOf(word, axis);
    if (use.pending()) placement.partials.push_back({axis, use.op()});
  }
  placement.Normalize();
  return placement;
}

}  // namespace heddle::compile
