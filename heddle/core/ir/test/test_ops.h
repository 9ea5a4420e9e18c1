// Ops and helpers for the tests of ir/.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "heddle/core/ir/check/check_module.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/edit/rewriter.h"
#include "heddle/core/ir/text/print.h"

namespace heddle {

inline Result<Types> SameShape(const OpArgs& args) { return Types{args[0]}; }
inline Result<Types> PairShape(const OpArgs& args) { return Types{args[0], args[0]}; }
inline Result<Types> AllShapes(const OpArgs& args) { return args.operands(); }
inline Result<Types> StartShape(const OpArgs& args) { return Types{Type::Async(args.operands())}; }
inline Result<Types> WaitShape(const OpArgs& args) { return args[0].elements; }
inline Result<Types> NoShape(const OpArgs&) { return Error(Diag::kUnknownOp, "no rule"); }

inline constexpr OpDef kTestOps[] = {
    {.schema = "heddle::opaque() -> ()", .shape = NoShape, .effect = Effect::kOpaque},
    {.schema = "aten::neg(Tensor self) -> Tensor", .shape = SameShape},
    {.schema = "aten::add(Tensor self, Tensor other) -> Tensor", .shape = SameShape},
    {.schema = "aten::pair(Tensor self) -> (Tensor, Tensor)", .shape = PairShape},
    {.schema = "aten::alias(Tensor(a) self) -> Tensor(a)",
     .shape = SameShape,
     .effect = Effect::kView},
    {.schema = "aten::rand(Tensor self) -> Tensor", .shape = SameShape, .effect = Effect::kRandom},
    {.schema = "aten::step(Tensor[] self, Tensor[] states) -> (Tensor[], Tensor[])",
     .shape = AllShapes,
     .effect = Effect::kUpdate},
    {.schema = "aten::scale(Tensor self, *, float by=1.0, Tensor? bias=None, int dim, SymInt[]? "
               "size=None) -> Tensor",
     .shape = SameShape},
    {.schema = "comm::start(Tensor... inputs, *, int... dim=0, str...? unit=None) -> Async",
     .shape = StartShape,
     .effect = Effect::kComm},
    {.schema = "comm::wait(Async handle) -> Tensor...",
     .shape = WaitShape,
     .effect = Effect::kComm},
};

inline const OpTable& TestOps() {
  static const OpTable table = [] {
    std::vector<OpTable::Entry> entries;
    for (const OpDef& def : kTestOps) entries.push_back({&def, "x"});
    return OpTable(entries);
  }();
  return table;
}

inline Module Read(const std::string& text) {
  Result<Module> module = ParseModule(text, "test", TestOps());
  EXPECT_TRUE(module.ok()) << text << Format(module.diagnostics());
  return *module;
}

// A module with one graph of these nodes.
inline Module ReadBody(const std::string& signature, const std::string& body) {
  return Read("heddle 1 local\ngraph @g" + signature + " {\n" + body + "}\n");
}

// The first results of all nodes, in order: "a b c ".
inline std::string Order(const Graph& graph) {
  std::string out;
  for (NodeId id : graph.nodes()) out += std::string(graph.name(graph[id].first_result)) + " ";
  return out;
}

// The node that produces `name`.
inline NodeId NodeOf(const Graph& graph, std::string_view name) {
  return graph[graph.FindValue(name)].producer;
}

inline constexpr const char* kChain =
    "heddle 1 local\ngraph @g(%x: f32[4]) -> (%c) {\n  %a = aten.neg(%x) : f32[4]\n"
    "  %b = aten.neg(%a) : f32[4]\n  %c = aten.add(%a, %b) : f32[4]\n}\n";

}  // namespace heddle
