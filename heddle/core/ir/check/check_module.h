// Verify: whether a module keeps the rules of the IR. It does not stop at the first error.
//
// Nodes. Operands are defined before they are used, as many as the schema takes, and of its kinds. Attributes are those of
// the schema, of its kinds, in its order, defaults left out; a list with one item for each tensor has as many. Result types
// are what the shape rule gives. An op that belongs in one view of a module stands in no other.
//
// Values. Placements and regions stand in global modules only. A placement has each axis of the mesh at most once, and splits
// only dimensions that are there and whose sizes are numbers. Types of global modules have whole sizes.
//
// Roles. Inputs and outputs all have one, or none has. Parameters are numbered and labelled once; states, gradients and
// updates belong to an input that is there, in a type that fits; a graph that reads saved values or tangents is a part of a
// step, and may have gradients of parameters that are elsewhere. In a module of several graphs, every `saved` input has the
// label of one `saved` output of a graph before it, with the same type and placement; no label is saved twice, nor read
// twice by one graph.
//
// Async values. Each is waited for once, behind its start, and read by nothing but its wait. A communicator is what a
// collective's `over` and its `stream` name together: `[dp,tp]` and `[tp,dp]` are two, on one stream as well. All ranks run
// one list of nodes, so that each communicator launches in one order everywhere, and no wait behind its start can hang.
// Nothing more is to be checked of the order of launches. A stream stands only on a node that starts something.
//
// Storages. What an update takes over (ir/storage.h) is not read afterwards: not through a view, not by a collective that
// still sends it, not as an output. No update takes over one storage twice, or reads it through another operand.
//
// Not checked here: whether placements follow from those of operands, and whether a pass kept the order of random ops
// (ir/random_order.h), which takes the module from before.
#pragma once

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"
#include "heddle/core/ir/text/locate.h"
#include "heddle/core/ir/text/parse.h"

namespace heddle {

struct Finding {
  Subject subject;
  Diagnostic diagnostic;
};

// The first few hundred, and then how many more there are.
std::vector<Finding> FindErrors(const Module& module);

// Diagnostics that name the graph and the value.
Status Verify(const Module& module);
// Diagnostics that point into the text that the module was read from.
Diagnostics VerifyParsed(const Parsed& parsed);

}  // namespace heddle
