// Verify: checks that a module keeps the rules of the IR. It reports all errors.
//
// Nodes. Operands are defined before their use, and match the schema in number and kind. Attributes
// match the schema in kind and order, without defaults. A list with one item per tensor has one
// item for each. Result types equal the result of the shape rule. An op for one view of a module
// occurs only in modules of that view.
//
// Values. Only global modules have placements and regions, and their types have whole sizes. A
// placement uses each mesh axis at most once. It splits only existing dimensions with numeric
// sizes.
//
// Roles. Either all inputs and outputs have a role, or none has. Parameters have unique numbers and
// labels. States, gradients and updates belong to an existing input with a matching type. A graph
// that reads saved values or tangents is a part of a step, and may have gradients of parameters
// that are not its inputs. In a module with several graphs, every `saved` input has the label of
// one `saved` output of an earlier graph, with the same type and placement. No label is saved
// twice, or read twice by one graph.
//
// Async values. Each has exactly one wait, after its start, and no other reader. `over` and
// `stream` of a collective together name its communicator: `[dp,tp]` and `[tp,dp]` are two
// communicators, even on one stream. All ranks run the same list of nodes, so each communicator
// launches in the same order on every rank, and a wait after its start cannot deadlock. Only a node
// that starts an operation has a stream.
//
// Storages. A storage that an update takes over (core/ir/storage.h) is not read afterwards: not
// through a view, by a collective in flight, or as an output. No update takes over one storage
// twice, or reads it through another operand.
//
// Not checked here: whether placements follow from those of operands, and whether a pass kept the
// order of random ops (core/ir/random_order.h), which needs the module before the pass.
#pragma once

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"
#include "heddle/core/ir/text/locate.h"
#include "heddle/core/ir/text/parse.h"

namespace heddle {

// An error, and the part of the module that it is about.
struct Finding {
  Subject subject;
  Diagnostic diagnostic;
};

// Returns the first few hundred errors, and the number of further ones.
std::vector<Finding> FindErrors(const Module& module);

// Diagnostics that name the graph and the value.
Status Verify(const Module& module);
// Diagnostics that point into the text from which the module was parsed.
Diagnostics VerifyParsed(const Parsed& parsed);

}  // namespace heddle
