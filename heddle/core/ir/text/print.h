// Graphs as text. Parse(Print(m)) gives back m, and Print(Parse(t)) gives back t for a text that Print wrote.
#pragma once

#include <string>

#include "heddle/core/ir/graph.h"

namespace heddle {

std::string Print(const Module& module);

// One node on one line, without indentation or newline.
std::string PrintNode(const Module& module, const Graph& graph, NodeId node);
// An input or output as it stands in the signature.
std::string PrintInput(const Module& module, const Graph& graph, const Input& input);
std::string PrintOutput(const Module& module, const Graph& graph, const Output& output);
// A type with a placement: `bf16[32{dp},1024]{+tp}`.
std::string PrintType(const Module& module, const Graph& graph, TypeId type,
                      PlacementId placement = PlacementTable::kReplicated);

// A type by value, without a placement.
std::string FormatType(const Type& type, const Mesh& mesh, const SymbolTable& symbols);

// Modules are equal when their texts are.
bool operator==(const Module& a, const Module& b);

}  // namespace heddle
