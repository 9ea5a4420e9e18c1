// Facts that the text form cannot show: arithmetic of chunks, rewriting, hashing, schemas, factors.
// These tests use ops of their own.
#include <algorithm>

#include <gtest/gtest.h>

#include "heddle/core/ir/factors.h"
#include "heddle/core/ir/schema.h"
#include "heddle/core/ir/structural_hash.h"
#include "heddle/core/ir/test/test_ops.h"
#include "heddle/core/ir/text/diff.h"

namespace heddle {
namespace {

TEST(Chunk, CeilSizedPartsCoverTheWhole) {
  for (int64_t whole : {0, 1, 5, 6, 7, 8, 64}) {
    for (int64_t outer : {1, 2, 3, 4}) {
      for (int64_t inner : {1, 2, 3}) {
        std::vector<int64_t> sizes{outer, inner};
        int64_t next = 0;
        for (int64_t i = 0; i < outer; ++i) {
          for (int64_t j = 0; j < inner; ++j) {
            std::vector<int64_t> at{i, j};
            EXPECT_EQ(ChunkBegin(whole, sizes, at), next) << whole << " " << outer << " " << inner;
            next += ChunkSize(whole, sizes, at);
          }
        }
        EXPECT_EQ(next, whole);
      }
    }
  }
}

TEST(Chunk, EvenSizesArePlainNumbers) {
  Mesh mesh({{"dp", 4}, {"tp", 2}});
  SymbolTable symbols;
  Axes both(0);
  both.Add(1);
  EXPECT_EQ(symbols.Chunk(8, Axes(0), mesh), 2);
  EXPECT_EQ(symbols.Chunk(8, both, mesh), 1);
  Dim uneven = symbols.Chunk(6, both, mesh);
  EXPECT_TRUE(IsSymbol(uneven));
  EXPECT_EQ(symbols.Bound(uneven), 1);
  EXPECT_EQ(symbols.Chunk(6, both, mesh), uneven);
}

TEST(Mesh, RanksCountWithTheFirstAxisSlowest) {
  Mesh mesh({{"dp", 2}, {"tp", 3}});
  for (int64_t rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(mesh.Coordinate(rank, 0), rank / 3);
    EXPECT_EQ(mesh.Coordinate(rank, 1), rank % 3);
  }
  using Lists = std::vector<std::vector<int64_t>>;
  Axes swapped(1);
  swapped.Add(0);
  EXPECT_EQ(Groups(mesh, Axes(0)), (Lists{{0, 3}, {1, 4}, {2, 5}}));
  EXPECT_EQ(Groups(mesh, Axes(1)), (Lists{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(Groups(mesh, swapped), (Lists{{0, 3, 1, 4, 2, 5}}));
  EXPECT_EQ(Groups(mesh, Axes()), (Lists{{0}, {1}, {2}, {3}, {4}, {5}}));
  EXPECT_EQ(Groups(Mesh(), Axes()), (Lists{{0}}));
  EXPECT_EQ(PartAt(5, swapped, mesh, 1), (Part{2, 1}));
}

TEST(Types, OverflowIsCounted) {
  SymbolTable symbols;
  EXPECT_EQ(CheckedBytes(symbols, Dims{3, 5}, DType::kBF16), 30);
  EXPECT_EQ(CheckedBytes(symbols, Dims{int64_t{1} << 61, 4}, DType::kF32), std::nullopt);
  EXPECT_EQ(CheckedBytes(symbols, Dims{0, int64_t{1} << 61, 4}, DType::kF32), std::nullopt);
  EXPECT_EQ(CheckedBytes(symbols, Dims{0, 7}, DType::kF32), 0);
}

TEST(DType, PromotionFollowsAten) {
  EXPECT_EQ(Promote(DType::kBF16, DType::kF16), DType::kF32);
  EXPECT_EQ(Promote(DType::kI64, DType::kBF16), DType::kBF16);
  EXPECT_EQ(Promote(DType::kU8, DType::kI8), DType::kI16);
  EXPECT_EQ(Promote(DType::kF64, DType::kC64), DType::kC128);
  EXPECT_EQ(Promote(DType::kBool, DType::kI32), DType::kI32);
}

// Arguments for new nodes may refer to the graph's own storage.
TEST(Graph, AppendsWhatItHolds) {
  Module m = ReadBody("(%x: f32[4]) -> (%second)", "  %first, %second = aten.pair(%x)\n");
  Graph& g = m.graphs[0];
  for (int i = 0; i < 1000; ++i) {
    NodeId last(g.node_count() - 1);
    std::vector<ResultSpec> results;
    for (ValueId v : g.results(last)) results.push_back({.type = g.type(v), .name = g.name(v)});
    NodeSpec spec;
    spec.op = g[last].op;
    spec.operands = g.operands(last);
    spec.results = results;
    g.Append(spec);
    g.types().Tensor(static_cast<DType>(1 + i % 8), g.types().dims(g.type(ValueId(0))));
  }
  ASSERT_TRUE(Verify(m).ok()) << Format(Verify(m).diagnostics());
  std::string expected = "second";
  for (NodeId id : g.nodes()) {
    EXPECT_EQ(g.operands(id)[0], ValueId(0));
    EXPECT_EQ(g.name(g.results(id)[1]), expected);
    expected += "_1";
  }
}

// A new name may be a substring of a stored one.
TEST(Graph, NamesCutOutOfNames) {
  StringTable<NameId> names;
  NameId whole = names.Intern(std::string(40, 'a') + std::string(40, 'b'));
  for (size_t n = 79; n > 0; --n) {
    NameId part = names.Intern(names[whole].substr(80 - n));
    EXPECT_EQ(names[part].size(), n);
    EXPECT_EQ(names[part], names[whole].substr(80 - n));
  }
}

TEST(Rewriter, InsertsAndErases) {
  Module m = Read(kChain);
  Graph& g = m.graphs[0];
  TypeId type = g.type(ValueId(0));
  {
    Rewriter rewriter(g);
    ValueId x(0);
    ResultSpec result{.type = type, .name = "a"};
    NodeSpec spec;
    spec.op = OpId(1);
    spec.operands = {&x, 1};
    spec.results = {&result, 1};
    NodeId fresh = rewriter.InsertBefore(NodeId(0), spec);
    rewriter.ReplaceValue(g.FindValue("b"), g[fresh].first_result);
    rewriter.Erase(NodeId(1));
    EXPECT_EQ(rewriter.Commit(), Changed::kYes);
  }
  EXPECT_EQ(Order(g), "a_1 a c ");
  EXPECT_TRUE(Verify(m).ok());
  EXPECT_EQ(m, Read(Print(m)));
}

TEST(Rewriter, ReorderAndNoEdit) {
  Module m = Read(kChain);
  Graph& g = m.graphs[0];
  EXPECT_EQ(Rewriter(g).Commit(), Changed::kNo);
  Rewriter rewriter(g);
  std::vector<NodeId> order{NodeId(2), NodeId(0), NodeId(1)};
  rewriter.Reorder(order);
  rewriter.Commit();
  EXPECT_EQ(Order(g), "c a b ");
  EXPECT_EQ(Verify(m).diagnostics()[0].kind, Diag::kUseBeforeDefinition);
}

TEST(Rewriter, LongChainsOfReplacements) {
  Module m = Read(kChain);
  Graph& g = m.graphs[0];
  Rewriter rewriter(g);
  rewriter.ReplaceValue(g.FindValue("b"), g.FindValue("a"));
  rewriter.ReplaceValue(g.FindValue("a"), g.FindValue("x"));
  rewriter.Erase(NodeId(0));
  rewriter.Erase(NodeId(1));
  rewriter.Commit();
  EXPECT_EQ(PrintNode(m, g, NodeId(0)).substr(0, 22), "%c = aten.add(%x, %x) ");
}

TEST(Rewriter, FreshNamesDependOnTheTextAlone) {
  // The same edit after a round trip through text creates the same names.
  auto edit = [](Graph& g) {
    ValueId old = g.FindValue("b");
    Rewriter rewriter(g);
    ValueId x(0);
    ResultSpec result{.type = g.type(x), .name = "b"};
    NodeSpec spec;
    spec.op = OpId(1);
    spec.operands = {&x, 1};
    spec.results = {&result, 1};
    rewriter.InsertLast(spec);
    rewriter.InsertLast(spec);
    if (old) {
      rewriter.ReplaceValue(old, x);
      rewriter.Erase(g[old].producer);
    }
    rewriter.Commit();
  };
  Module straight = Read(kChain);
  edit(straight.graphs[0]);
  edit(straight.graphs[0]);
  Module detour = Read(kChain);
  edit(detour.graphs[0]);
  detour = Read(Print(detour));
  edit(detour.graphs[0]);
  EXPECT_EQ(Print(straight), Print(detour));
  EXPECT_EQ(Order(straight.graphs[0]), "a c b_1 b_2 b b_3 ");
}

TEST(RewriterDeathTest, MistakesOfOursAreCaught) {
  Module m = Read(kChain);
  EXPECT_DEATH(
      {
        Rewriter rewriter(m.graphs[0]);
        rewriter.Erase(NodeId(0));
        rewriter.Commit();
      },
      "`%a` is used, but its node was erased");
  EXPECT_DEATH(
      {
        Rewriter rewriter(m.graphs[0]);
        rewriter.Erase(NodeId(2));
      },
      "without a commit");
}

TEST(StructuralHash, IgnoresNamesAndSeesEverythingElse) {
  auto hash = [](const std::string& text) { return StructuralHash(Read(text)); };
  std::string text = kChain;
  auto edited = [&](std::string_view from, std::string_view to) {
    std::string out = text;
    for (size_t at = out.find(from); at != std::string::npos; at = out.find(from, at + to.size()))
      out.replace(at, from.size(), to);
    return hash(out);
  };
  EXPECT_EQ(edited("%b", "%zz"), hash(text));
  EXPECT_NE(edited("f32", "bf16"), hash(text));
  EXPECT_NE(edited("f32[4]\n}", "f32[4] @scope\n}"), hash(text));
  EXPECT_NE(edited("f32[4]\n}", "f32[4] keep=must_save\n}"), hash(text));
  EXPECT_NE(edited("add(%a, %b)", "add(%b, %a)"), hash(text));
  EXPECT_NE(edited("(%c)", "(%b)"), hash(text));
  EXPECT_NE(edited("%x: f32[4]", "%x: f32[4] batch"), hash(text));
  EXPECT_NE(edited(" {\n", " {\n bwd:\n"), hash(text));
  EXPECT_NE(edited("local", "global"), hash(text));
  std::string launch =
      "heddle 1 local\ngraph @g(%x: f32[4], %y: f32[4]) -> (%a, %b) {\n  %s = "
      "comm.start(%x, %y, dim=[0,1], unit=[\"u\",\"v\"]) stream=1\n  %a, %b = comm.wait(%s)\n}\n";
  auto relaunched = [&](std::string_view from, std::string_view to) {
    std::string out = launch;
    return hash(out.replace(out.find(from), from.size(), to));
  };
  EXPECT_NE(relaunched("stream=1", "stream=2"), hash(launch));
  EXPECT_NE(relaunched("[0,1]", "[1,0]"), hash(launch));
  EXPECT_NE(relaunched("[0,1]", "0"), hash(launch));
  EXPECT_NE(relaunched("\"v\"", "\"w\""), hash(launch));
  EXPECT_NE(relaunched("[\"u\",\"v\"]", "\"u\""), hash(launch));
}

TEST(StructuralHash, DoesNotDependOnHistory) {
  Module m = Read(kChain);
  Hash128 before = StructuralHash(m);
  // Types and attributes that no node uses remain in the tables.
  m.graphs[0].types().Tensor(DType::kF64, Dims{9, 9});
  Attrs attrs;
  attrs.Set("alpha", int64_t{3});
  m.graphs[0].InternAttrs(attrs);
  EXPECT_EQ(StructuralHash(m), before);
}

TEST(Verify, PlacementsFitTheView) {
  Module m = Read(kChain);
  m.mesh = Mesh({{"dp", 2}});
  Graph& g = m.graphs[0];
  Rewriter rewriter(g);
  Placement split;
  split.splits = {Axes(0)};
  rewriter.SetType(ValueId(1), g.type(ValueId(1)), g.placements().Intern(split));
  rewriter.Commit();
  ASSERT_FALSE(Verify(m).ok());
  EXPECT_EQ(Verify(m).diagnostics()[0].kind, Diag::kPlacement);
  m.view = View::kGlobal;
  EXPECT_TRUE(Verify(m).ok());
}

TEST(Schema, OneForEachTensor) {
  Result<Schema> schema =
      ParseSchema("comm::f(Tensor... x, *, int... dim=0, str...? unit=None) -> Async");
  ASSERT_TRUE(schema.ok()) << Format(schema.diagnostics());
  const Arg& dim = schema->args[1];
  const Arg& unit = schema->args[2];
  EXPECT_EQ(dim.kind, ArgKind::kEachInt);
  EXPECT_EQ(std::get<int64_t>(dim.default_value), 0);
  EXPECT_EQ(unit.kind, ArgKind::kEachString);
  EXPECT_TRUE(unit.optional);
  using Ints = std::vector<int64_t>;
  using Names = std::vector<std::string>;
  EXPECT_EQ(ConvertAttr(dim, Ints{2, 2}), AttrValue(int64_t{2}));
  EXPECT_EQ(ConvertAttr(dim, Ints{2, 1}), AttrValue(Ints{2, 1}));
  EXPECT_EQ(ConvertAttr(dim, Ints{}), std::nullopt);
  EXPECT_EQ(ConvertAttr(dim, Names{"a"}), std::nullopt);
  EXPECT_EQ(ConvertAttr(unit, Names{"a", "a"}), AttrValue(std::string("a")));
  EXPECT_EQ(ConvertAttr(unit, Names{"a", "b"}), AttrValue(Names{"a", "b"}));
  EXPECT_EQ(ConvertAttr(unit, AttrValue()), AttrValue());
  EXPECT_EQ(EachInt(Ints{2, 1}, 1), 1);
  EXPECT_EQ(EachInt(int64_t{2}, 1), 2);
  EXPECT_EQ(EachString(Names{"a", "b"}, 1), "b");
  EXPECT_EQ(EachString(std::string("a"), 1), "a");
  EXPECT_FALSE(ParseSchema("comm::f(bool... x) -> Async").ok());
}

TEST(Schema, ReadsAtensNotation) {
  Result<Schema> schema = ParseSchema(
      "aten::f.over(Tensor(a) self, Tensor?[] indices, SymInt[2]? size=None, *, float eps=1e-05, "
      "Device? device=None, "
      "bool? pin_memory=None, str mode=\"none\") -> (Tensor(a)[], SymInt)");
  ASSERT_TRUE(schema.ok()) << Format(schema.diagnostics());
  EXPECT_EQ(schema->name, "aten.f.over");
  EXPECT_EQ(schema->args[1].kind, ArgKind::kOptionalTensorList);
  EXPECT_TRUE(schema->args[2].optional);
  EXPECT_EQ(std::get<double>(schema->args[3].default_value), 1e-05);
  EXPECT_EQ(schema->args[4].kind, ArgKind::kAmbient);
  EXPECT_EQ(schema->args[5].kind, ArgKind::kAmbient);
  EXPECT_EQ(std::get<std::string>(schema->args[6].default_value), "none");
  EXPECT_EQ(schema->FixedResults(), -1);
  for (const char* bad : {"", "aten::f", "aten::f(", "aten::f(Tensor) -> Tensor",
                          "aten::f(Tensor(a!) x) -> Tensor", "aten::f(Quux x) -> Tensor",
                          "aten::f(int x=abc) -> Tensor", "aten::f(Tensor x) -> Tensor junk("}) {
    Result<Schema> parsed = ParseSchema(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.diagnostics()[0].kind, Diag::kBadSchema);
  }
}

TEST(Factors, SizesComeFromTheTypes) {
  auto tensor = [](Dims dims) { return Type::Tensor(DType::kF32, std::move(dims)); };
  Result<Factors> f =
      FactorsFromText("(b (g r) s, b g t) -> (b (g r) t) reduce{s} whole{r} linear{0|1}",
                      {tensor({2, 6, 5}), tensor({2, 3, 7})}, {tensor({2, 6, 7})});
  ASSERT_TRUE(f.ok()) << Format(f.diagnostics());
  EXPECT_EQ(f->factors[2].size, 2);
  EXPECT_EQ(Format(*f), "(b (g r) s, b g t) -> (b (g r) t) reduce{s} whole{r} linear{0|1}");
  for (const char* bad :
       {"", "(m", "(m) -> (n", "(m n) -> (m)", "(m) -> (m) odd{m}", "((a b)) -> ((a b))"}) {
    Result<Factors> read = FactorsFromText(bad, {tensor({4})}, {tensor({4})});
    ASSERT_FALSE(read.ok()) << bad;
    EXPECT_EQ(read.diagnostics()[0].kind, Diag::kBadFactors);
  }
}

TEST(Parse, ManyMistakesAreCounted) {
  std::string text = "heddle 1 local\ngraph @g() -> () {\n";
  for (int i = 0; i < 1000; ++i) text += "  %a = = =\n";
  Parsed parsed = ParseText(text + "}\n", "test", TestOps());
  ASSERT_EQ(parsed.diagnostics.size(), 257u);
  EXPECT_EQ(parsed.diagnostics.back().kind, Diag::kManyMistakes);
  EXPECT_EQ(parsed.diagnostics.back().message, "744 more mistakes are not shown");
}

TEST(Parse, HostileGraphsStayLinear) {
  // Superlinear growth would take minutes or gigabytes.
  constexpr int kMany = 100'000;
  std::string graphs = "heddle 1 local\n";
  for (int i = 0; i < kMany; ++i) graphs += "graph @g" + std::to_string(i) + "() -> () {}\n";
  Parsed lines = ParseText(graphs, "test", TestOps());
  EXPECT_TRUE(lines.diagnostics.empty());
  EXPECT_TRUE(VerifyParsed(lines).empty());
  EXPECT_EQ(lines.module.graphs.size(), size_t{kMany});
  std::ranges::replace(graphs, '\n', ' ');
  EXPECT_TRUE(ParseText(graphs, "test", TestOps()).diagnostics.empty());

  std::string unknown = "heddle 1 local\ngraph @g(%x: f32[4]) -> () {\n";
  for (int i = 0; i < kMany; ++i) unknown += "  %a" + std::to_string(i) + " = comm.wiat(%x)\n";
  EXPECT_EQ(ParseText(unknown + "}\n", "test", TestOps()).diagnostics.size(), 257u);

  std::string regions = "heddle 1 global\nmesh [dp=2]\ngraph @g() -> () {\n";
  for (int i = 0; i < kMany; ++i) regions += " region @s" + std::to_string(i) + " local=[dp]\n";
  Parsed many = ParseText(regions + "}\n", "test", TestOps());
  EXPECT_TRUE(many.diagnostics.empty());
  EXPECT_EQ(many.module.graphs[0].regions().size(), size_t{kMany});

  // One node with many errors.
  std::string sums =
      "heddle 1 local\ngraph @g(%x: f32[4]) -> () {\n  %h = comm.start(%x)\n  %a = "
      "aten.f(";
  for (int i = 0; i < kMany; ++i) sums += i == 0 ? "%h" : ", %h";
  Parsed one = ParseText(sums + ") : f32[4]\n}\n", "test", TestOps());
  EXPECT_TRUE(one.diagnostics.empty());
  EXPECT_EQ(VerifyParsed(one).size(), 257u);
}

TEST(Diff, OfManyEqualNodesStaysLinear) {
  std::string text = "heddle 1 local\ngraph @g(%x: f32[4]) -> () {\n";
  for (int i = 0; i < 50'000; ++i) text += "  aten.check(%x)\n";
  Module m = Read(text + "}\n");
  EXPECT_TRUE(Diff(m, m).empty());
}

TEST(Parse, HostileNamesAndListsStayLinear) {
  // Quadratic time in the parser or verifier would take minutes.
  constexpr int kMany = 200'000;
  std::string results;
  std::string types;
  std::string uses;
  for (int i = 0; i < kMany; ++i) {
    results += (i == 0 ? "%r" : ", %r") + std::to_string(i);
    types += i == 0 ? "f32[]" : ", f32[]";
    uses += (i == 0 ? "%u" : ", %u") + std::to_string(i);
  }
  std::string head = "heddle 1 local\ngraph @g(%x: f32[4]) -> (" + results + ") {\n";
  Parsed many = ParseText(head + "  " + results + " = aten.many(%x) : (" + types + ")\n}\n", "test",
                          TestOps());
  EXPECT_TRUE(many.diagnostics.empty());
  EXPECT_TRUE(VerifyParsed(many).empty());
  Parsed undefined = ParseText("heddle 1 local\ngraph @g() -> () {\n  aten.f(" + uses + ")\n}\n",
                               "test", TestOps());
  EXPECT_EQ(undefined.diagnostics.size(), 257u);
  std::string backwards = "heddle 1 local\ngraph @g(%x: f32[4]) -> () {\n";
  for (int i = 0; i < kMany; ++i)
    backwards +=
        "  %n" + std::to_string(i) + " = aten.neg(%n" + std::to_string(i + 1) + ") : f32[4]\n";
  Parsed reversed =
      ParseText(backwards + "  %n" + std::to_string(kMany) + " = aten.neg(%x) : f32[4]\n}\n",
                "test", TestOps());
  EXPECT_TRUE(reversed.diagnostics.empty());
  EXPECT_EQ(VerifyParsed(reversed).size(), 64u);
}

}  // namespace
}  // namespace heddle
