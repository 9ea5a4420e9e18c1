// What is known of ops that are not in the table and that printed graphs have all the same: the types of their results.
#pragma once

#include <functional>

#include "heddle/import/read/program.h"

namespace heddle {

// The type of an argument that is a tensor, or null.
using TypeOf = std::function<const Type*(const ForeignValue&)>;

// The results of a call of an op that is not in the table; none where nothing is known of it. The graph has the words of the program.
std::optional<std::vector<Type>> ForeignShape(const ForeignProgram& program, const Graph& graph,
                                              const ForeignCall& call, const TypeOf& type_of);

// Whether the op checks something and has no result.
bool IsAssertion(std::string_view target);

// The result of arithmetic with whole numbers, as `operator.add` and `torch.sym_sum` do it; none if it has none.
std::optional<int64_t> Compute(std::string_view target, const std::vector<int64_t>& numbers);
bool IsComparison(std::string_view target);

}  // namespace heddle
