// The choices of an op for one mesh axis, the resulting requirements for its operands, and their
// costs. Used by placing.cc.
#pragma once

#include <optional>

#include "heddle/compile/shard/axis_state.h"
#include "heddle/compile/shard/placing.h"

namespace heddle::compile {

struct Choice {
  enum class Kind : uint8_t { kSplit, kLinear, kReplicate } kind = Kind::kReplicate;
  // Index of the factor, or of the linear group.
  uint32_t index = 0;
  bool operator==(const Choice&) const = default;
};

// The choices of one call.
class AxisChoices {
 public:
  AxisChoices(const PlacingRequest& request, const Mesh& mesh)
      : request_(request), factors_(*request.factors), mesh_(mesh) {}

  AxisState Needed(size_t operand, const Choice& choice) const;
  AxisState Made(size_t result, const Choice& choice) const;
  // Bytes that an operand moves to meet the choice's requirement; nullopt if it cannot.
  std::optional<int64_t> Cost(size_t operand, AxisId axis, const Choice& choice) const;

  bool IsUnread(size_t operand) const;
  bool HasFactors(size_t operand, size_t dim) const;
  // Bytes of a rank's part if the axis did not split it.
  int64_t PartBytes(size_t operand, AxisId axis) const;

 private:
  const PlacingRequest& request_;
  const Factors& factors_;
  const Mesh& mesh_;
};

}  // namespace heddle::compile
