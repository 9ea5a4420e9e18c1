// Calls of ops for sharding tests: the example of each op, further calls, and both with other
// sizes.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/ir/text/op_example.h"
#include "heddle/core/ops/ops.h"

namespace heddle {

// One call, by value: after a change of types, the rest can be inferred again.
struct OpCall {
  OpId op;
  Attrs attrs;
  // In flat order; none for an absent operand.
  std::vector<Type> operands;
  // The kind of numbers for each operand.
  std::vector<ExampleInput> data;
  Types results;
  Factors factors;

  const Op& def() const { return Ops()[op]; }
};

// Parses a call from an example.
OpCall MakeCall(OpId op, std::string_view example);
// Returns the op's own example and those of the table in op_call.cc.
std::vector<OpCall> CallsOf(OpId op);
// Changes floats to f64 and complex numbers to c128, also in attributes; nullopt if the op does not
// accept it.
std::optional<OpCall> Widened(const OpCall& call);
// Changes as many sizes of splittable loops as the op accepts. `turn` selects the sizes.
OpCall Resized(const OpCall& call, size_t turn);

// Returns a graph of this call. Placements are by flat operand and result; without a mesh, they may
// be empty.
Module ModuleOf(const OpCall& call, View view, const Mesh& mesh,
                const std::vector<Placement>& operands, const std::vector<Placement>& results);

// Formats a call as `aten.mm (m k, k n) -> (m n) ...: f64[8,16], f64[16,4]`.
std::string Describe(const OpCall& call);

}  // namespace heddle
