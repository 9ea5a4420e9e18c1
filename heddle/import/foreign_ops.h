// What is known of ops that are not in the table and that printed graphs have all the same: their names, and the types of their results.
#pragma once

#include <functional>

#include "heddle/import/read/program.h"

namespace heddle {

// The type of an argument that is a tensor, or null.
using TypeOf = std::function<const Type*(const ForeignValue&)>;

// The results of a call of an op that is not in the table; none where nothing is known of it.
// A name says nothing but what it stands for: calls that differ in names alone have the same results.
std::optional<std::vector<Type>> ForeignShape(const ForeignProgram& program,
                                              const ForeignCall& call, const TypeOf& type_of);

// An op outside the table as graphs name it: ATen's own name, or one marked as from elsewhere.
std::string OpaqueName(std::string_view target);
// `aten.add_.Tensor`, but not `aten.__and__.Tensor`.
bool WritesInPlace(std::string_view target);

// Whether the op checks something and has no result.
bool IsAssertion(std::string_view target);

// The result of arithmetic with whole numbers, as `operator.add` and `torch.sym_sum` do it; none if it has none.
std::optional<int64_t> Compute(std::string_view target, const std::vector<int64_t>& numbers);
bool IsComparison(std::string_view target);

}  // namespace heddle
