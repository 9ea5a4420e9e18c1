// Arguments of calls, and the operands and attributes that nodes store for them.
#include "heddle/core/ir/edit/call_builder.h"

#include "heddle/core/ir/structural_hash.h"
#include "heddle/core/ir/test/test_ops.h"

namespace heddle {
namespace {

class Build : public testing::Test {
 protected:
  const Op& op(std::string_view name) { return TestOps()[TestOps().Find(name)]; }

  // The attributes and operands of the finished call, or the error and its argument.
  std::string Finish() {
    if (auto mistake = builder_.Finish()) {
      std::string at = mistake->argument == CallBuilder::Mistake::kEnd
                           ? "end"
                           : std::to_string(mistake->argument);
      return at + ": " + mistake->diagnostic.message;
    }
    std::string out;
    for (ValueId v : builder_.operands()) out += v ? std::to_string(v.index()) + " " : "- ";
    for (uint32_t size : builder_.attrs().list_sizes) out += "/" + std::to_string(size) + " ";
    for (const OpaqueSlot& slot : builder_.attrs().opaque_slots)
      out += slot.name + (slot.is_list ? "[]" : "") + std::to_string(slot.count) + " ";
    for (const Attr& attr : builder_.attrs().list) {
      out += attr.name + "=";
      AppendAttrValue(out, attr.value, mesh_, symbols_);
      out += " ";
    }
    return out;
  }

  Mesh mesh_;
  SymbolTable symbols_;
  CallBuilder builder_{mesh_, symbols_};
};

TEST_F(Build, AttributesAreSortedAndConvertedAndDefaultsLeftOut) {
  builder_.Begin(op("aten.scale"));
  builder_.AddAttr("size", int64_t{3});
  builder_.AddAttr("dim", int64_t{1});
  builder_.AddTensor(ValueId(7), "bias");
  builder_.AddAttr("by", int64_t{2});
  builder_.AddTensor(ValueId(5), "self");
  EXPECT_EQ(Finish(), "5 7 by=2.0 dim=1 size=[3] ");
  builder_.Begin(op("aten.scale"));
  builder_.AddTensor(ValueId(5));
  builder_.AddAttr("dim", int64_t{0});
  builder_.AddAttr("by", 1.0);
  builder_.AddAttr("size", AttrValue());
  EXPECT_EQ(Finish(), "5 - dim=0 ");
}

TEST_F(Build, ListsOfTensors) {
  std::vector<ValueId> two{ValueId(1), ValueId(2)};
  builder_.Begin(op("aten.step"));
  builder_.AddTensors(two);
  builder_.AddTensors({}, "states");
  EXPECT_EQ(Finish(), "1 2 /2 /0 ");
  builder_.Begin(op("comm.start"));
  for (uint32_t i : {1u, 2u, 3u}) builder_.AddTensor(ValueId(i));
  builder_.AddAttr("unit", std::vector<std::string>{"a", "b", "a"});
  builder_.AddAttr("dim", std::vector<int64_t>{1, 1, 1});
  EXPECT_EQ(Finish(), "1 2 3 /3 dim=1 unit=[\"a\",\"b\",\"a\"] ");
  builder_.Begin(op("comm.start"));
  builder_.AddTensors(two, "inputs");
  EXPECT_EQ(Finish(), "1 2 /2 ");
}

TEST_F(Build, OpsOutsideTheTable) {
  std::vector<ValueId> two{ValueId(1), ValueId()};
  builder_.BeginOpaque("aten.mystery");
  builder_.AddTensor(ValueId(3));
  builder_.AddAttr("zeta", std::vector<double>());
  builder_.AddTensors(two, "more");
  builder_.AddAttr("alpha", 2.0);
  EXPECT_EQ(Finish(), "3 1 - 1 more[]2 zeta=[] alpha=2.0 ");
  // An empty list has no item kind.
  EXPECT_TRUE(std::holds_alternative<std::vector<int64_t>>(builder_.attrs().list[0].value));
  builder_.BeginOpaque("aten.mystery");
  builder_.AddAttr("alpha", 2.0);
  builder_.AddAttr("alpha", 3.0);
  EXPECT_EQ(Finish(), "1: argument `alpha` is given twice");
}

TEST_F(Build, Mistakes) {
  auto scale = [&](auto&& add) {
    builder_.Begin(op("aten.scale"));
    add();
    return Finish();
  };
  EXPECT_EQ(scale([] {}), "end: aten.scale takes a tensor as argument `self`, which is missing");
  EXPECT_EQ(scale([&] { builder_.AddTensor(ValueId()); }),
            "0: `self` of aten.scale is a tensor, not none");
  EXPECT_EQ(scale([&] { builder_.AddTensor(ValueId(1)); }),
            "end: aten.scale needs attribute `dim`, an integer");
  EXPECT_EQ(scale([&] {
              builder_.AddTensor(ValueId(1));
              builder_.AddTensor(ValueId(2), "self");
            }),
            "1: argument `self` of aten.scale is given by name and by position");
  EXPECT_EQ(scale([&] {
              builder_.AddTensor(ValueId(1));
              builder_.AddTensor(ValueId(2), "dim");
            }),
            "1: aten.scale has no optional tensor `dim`");
  EXPECT_EQ(scale([&] {
              builder_.AddTensor(ValueId(1));
              builder_.AddAttr("dmi", int64_t{1});
            }),
            "1: aten.scale has no attribute `dmi`; nearest is `dim`");
  EXPECT_EQ(scale([&] {
              builder_.AddTensor(ValueId(1));
              builder_.AddAttr("dim", 0.5);
            }),
            "1: attribute `dim` of aten.scale is an integer, got 0.5");
  // The smallest integers are codes of symbols.
  EXPECT_EQ(scale([&] {
              builder_.AddTensor(ValueId(1));
              builder_.AddAttr("dim", INT64_MIN);
            }),
            "1: attribute `dim` of aten.scale is less than -9223372032559808512, the least integer "
            "of a graph");
  builder_.Begin(op("comm.start"));
  builder_.AddTensor(ValueId(1));
  builder_.AddAttr("dim", std::vector<int64_t>{0, 1});
  EXPECT_EQ(Finish(), "1: attribute `dim` of comm.start has 2 items for 1 tensor");
}

// A pass may build attributes in any order. Once interned in canonical form, they print, parse and
// hash the same.
TEST(Attrs, HaveOneForm) {
  Module m = ReadBody("(%x: f32[4]) -> (%a)", "  %a = aten.scale(%x, bias=%x, dim=1)\n");
  Graph& g = m.graphs[0];
  Attrs attrs;
  attrs.Set("size", int64_t{4});
  attrs.Set("dim", int64_t{1});
  attrs.Set("by", 1.0);
  {
    Module loose = m;
    Rewriter rewriter(loose.graphs[0]);
    rewriter.SetAttrs(NodeId(0), loose.graphs[0].InternAttrs(attrs));
    rewriter.Commit();
    ASSERT_FALSE(Verify(loose).ok());
    EXPECT_EQ(Verify(loose).diagnostics()[0].kind, Diag::kAttrOrder);
    // Nothing is lost in printing.
    std::string line = PrintNode(loose, loose.graphs[0], NodeId(0));
    for (const char* name : {"size=4", "dim=1", "by=1.0", "bias=%x"})
      EXPECT_NE(line.find(name), std::string::npos) << line;
  }
  Rewriter rewriter(g);
  rewriter.SetAttrs(NodeId(0), g.InternAttrs(CanonicalAttrs(g.op(NodeId(0)), attrs)));
  rewriter.Commit();
  EXPECT_TRUE(Verify(m).ok());
  EXPECT_EQ(StructuralHash(m), StructuralHash(Read(Print(m))));
  EXPECT_EQ(PrintNode(m, g, NodeId(0)).substr(0, 47),
            "%a = aten.scale(%x, bias=%x, dim=1, size=[4])  ");
}

}  // namespace
}  // namespace heddle
