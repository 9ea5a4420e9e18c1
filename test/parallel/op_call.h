// Calls of ops to test sharding with: the example of each, further ways of calling it, and both in other sizes.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/ir/text/op_example.h"
#include "heddle/core/ops/ops.h"

namespace heddle {

// One call, by value: types can be changed and the rest worked out anew.
struct OpCall {
  OpId op;
  Attrs attrs;
  // Flat; none where one is absent.
  std::vector<Type> operands;
  // What the numbers of each operand should be.
  std::vector<ExampleInput> data;
  Types results;
  Factors factors;

  const Op& def() const { return Ops()[op]; }
};

// A call from an example in text.
OpCall MakeCall(OpId op, std::string_view example);
// The op's own example and those of the table in op_call.cc.
std::vector<OpCall> CallsOf(OpId op);
// Floats become f64 and complex numbers c128, also where attributes name them; nothing if the op takes no such call.
std::optional<OpCall> Widened(const OpCall& call);
// The call with other sizes of the loops that can be split: as many as the op takes. `turn` picks the sizes.
OpCall Resized(const OpCall& call, size_t turn);

// A graph of this call alone. Placements are by flat operand and result; without a mesh, none are needed.
Module ModuleOf(const OpCall& call, View view, const Mesh& mesh,
                const std::vector<Placement>& operands, const std::vector<Placement>& results);

// `aten.mm (m k, k n) -> (m n) ...: f64[8,16], f64[16,4]`
std::string Describe(const OpCall& call);

}  // namespace heddle
