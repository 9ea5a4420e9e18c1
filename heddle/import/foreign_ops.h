// Facts about ops outside the table that printed graphs contain: their names, and the types of
// their results.
#pragma once

#include <functional>

#include "heddle/import/read/program.h"

namespace heddle {

// The type of an argument that is a tensor, or null.
using TypeOf = std::function<const Type*(const ForeignValue&)>;

// The result types of a call of an op outside the table; nullopt if they are unknown. They do not
// depend on the names of values.
std::optional<std::vector<Type>> ForeignShape(const ForeignProgram& program,
                                              const ForeignCall& call, const TypeOf& type_of);

// The name of an op outside the table in a graph: ATen's name, or a name marked as foreign.
std::string OpaqueName(std::string_view target);
// `aten.add_.Tensor`, but not `aten.__and__.Tensor`.
bool WritesInPlace(std::string_view target);

// Whether the op checks something and has no result.
bool IsAssertion(std::string_view target);

// The result of integer arithmetic as `operator.add` and `torch.sym_sum` compute it; nullopt if
// undefined.
std::optional<int64_t> Compute(std::string_view target, const std::vector<int64_t>& numbers);
bool IsComparison(std::string_view target);

}  // namespace heddle
