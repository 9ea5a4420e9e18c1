// Verify: whether a module keeps the rules of the IR. It collects every error; it never stops at the first.
//
// Checked: operands are defined before use and of the kind the schema asks for, async values reach only a wait, result
// types are what the op's shape rule gives, placements fit the view and the mesh, roles are complete and paired, and a
// storage that an update takes over is not read afterwards.
#pragma once

#include "heddle/base/result.h"
#include "heddle/ir/graph.h"
#include "heddle/ir/locate.h"
#include "heddle/ir/parse.h"

namespace heddle {

struct Finding {
  Subject subject;
  Diagnostic diagnostic;
};

std::vector<Finding> FindErrors(const Module& module);

// Diagnostics that name the graph and the value.
Status Verify(const Module& module);
// Diagnostics that point into the text that the module was read from.
Diagnostics VerifyParsed(const Parsed& parsed);

}  // namespace heddle
