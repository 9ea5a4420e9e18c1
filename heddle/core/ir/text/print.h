// Prints graphs as text. Parse(Print(m)) equals m, and Print(Parse(t)) equals t for a text that
// Print wrote.
#pragma once

#include <string>

#include "heddle/core/ir/graph.h"

namespace heddle {

// The canonical text of a module.
std::string Print(const Module& module);

// One node on one line, without indentation or newline.
std::string PrintNode(const Module& module, const Graph& graph, NodeId node);
// An input or output in the syntax of the signature.
std::string PrintInput(const Module& module, const Graph& graph, const Input& input);
std::string PrintOutput(const Module& module, const Graph& graph, const Output& output);
// A type with a placement: `bf16[32{dp},1024]{+tp}`.
std::string PrintType(const Module& module, const Graph& graph, TypeId type,
                      PlacementId placement = PlacementTable::kReplicated);

// A type by value, without a placement.
std::string FormatType(const Type& type, const Mesh& mesh, const SymbolTable& symbols);

// Modules are equal if their texts are.
bool operator==(const Module& a, const Module& b);

}  // namespace heddle
