// Tests of the ATen calls and kernels that graphs need beyond ATen's own.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/aten/attention_part.h"
#include "heddle/run/aten/attr.h"
#include "heddle/run/aten/call.h"
#include "heddle/run/aten/grouped_mm.h"

namespace heddle::run {
namespace {

// Ends of the groups. The second group is empty, and the last two positions belong to no group.
const std::vector<int64_t> kEnds{3, 3, 5};
constexpr int64_t kCut = 7;

at::Tensor Ends() { return at::tensor(kEnds, at::kInt); }
at::Tensor Random(at::IntArrayRef sizes) { return at::rand(sizes, at::kDouble); }
double At(const at::Tensor& t, at::IntArrayRef index) {
  at::Tensor element = t;
  for (int64_t i : index) element = element[i];
  return element.item<double>();
}
// Returns the group of a position, or -1 after the last group.
int64_t GroupOf(int64_t position) {
  for (size_t g = 0; g < kEnds.size(); ++g) {
    if (position < kEnds[g]) return static_cast<int64_t>(g);
  }
  return -1;
}

TEST(GroupedMm, RowsOfTheLeft) {
  at::Tensor a = Random({kCut, 4});
  at::Tensor b = Random({3, 4, 2});
  at::Tensor expected = at::zeros({kCut, 2}, at::kDouble);
  for (int64_t t = 0; t < kCut; ++t) {
    for (int64_t n = 0; n < 2; ++n) {
      for (int64_t k = 0; k < 4 && GroupOf(t) >= 0; ++k)
        expected[t][n] += At(a, {t, k}) * At(b, {GroupOf(t), k, n});
    }
  }
  EXPECT_TRUE(GroupedMm(a, b, Ends()).allclose(expected, 0, 1e-12));
}

TEST(GroupedMm, ColumnsOfTheRight) {
  at::Tensor a = Random({3, 2, 4});
  at::Tensor b = Random({4, kCut});
  at::Tensor expected = at::zeros({2, kCut}, at::kDouble);
  for (int64_t t = 0; t < kCut; ++t) {
    for (int64_t m = 0; m < 2; ++m) {
      for (int64_t k = 0; k < 4 && GroupOf(t) >= 0; ++k)
        expected[m][t] += At(a, {GroupOf(t), m, k}) * At(b, {k, t});
    }
  }
  EXPECT_TRUE(GroupedMm(a, b, Ends()).allclose(expected, 0, 1e-12));
}

TEST(GroupedMm, InnerPositions) {
  // Gradients of weights are transposed views like this one.
  at::Tensor a = Random({kCut, 2}).t();
  at::Tensor b = Random({kCut, 4});
  at::Tensor expected = at::zeros({3, 2, 4}, at::kDouble);
  for (int64_t t = 0; t < kCut && GroupOf(t) >= 0; ++t) {
    for (int64_t m = 0; m < 2; ++m) {
      for (int64_t n = 0; n < 4; ++n) expected[GroupOf(t)][m][n] += At(a, {m, t}) * At(b, {t, n});
    }
  }
  EXPECT_TRUE(GroupedMm(a, b, Ends()).allclose(expected, 0, 1e-12));
}

TEST(GroupedMm, TwoStacks) {
  at::Tensor a = Random({3, 2, 4});
  at::Tensor b = Random({3, 4, 5});
  at::Tensor out = GroupedMm(a, b, std::nullopt);
  for (int64_t g = 0; g < 3; ++g) EXPECT_TRUE(out[g].allclose(a[g].mm(b[g]), 0, 1e-12));
}

// Runs a graph of one node on `operands`.
at::Tensor RunNode(const std::string& text, const std::vector<at::Tensor>& operands) {
  Result<Module> module = ParseModule(text, "test", Ops());
  EXPECT_TRUE(module.ok()) << Format(module.diagnostics());
  AtenCall call = *AtenCall::Bind(*module, module->graphs[0], NodeId(0), c10::kCPU);
  std::vector<const at::Tensor*> given;
  for (const at::Tensor& operand : operands) given.push_back(&operand);
  torch::jit::Stack stack;
  std::vector<at::Tensor> results;
  call.Run(given, stack, results);
  return results[0];
}

TEST(GroupedMm, IsWhatNodesOfF64Run) {
  at::Tensor a = Random({kCut, 4});
  at::Tensor b = Random({3, 4, 4});
  // When ATen supports f64, our kernel can be deleted.
  EXPECT_ANY_THROW(at::_grouped_mm(a, b, Ends()));
  auto text = [](std::string_view dtype) {
    return fmt::format(
        "heddle 1 local\ngraph @g(%a: {0}[7,4], %b: {0}[3,4,4], %e: i32[3]) -> (%y) {{\n"
        "  %y = aten._grouped_mm(%a, %b, offs=%e)\n}}\n",
        dtype);
  };
  at::Tensor out = RunNode(text("f64"), {a, b, Ends(), at::Tensor(), at::Tensor()});
  EXPECT_TRUE(out.equal(GroupedMm(a, b, Ends())));
  // The same in f32. Compares the groups only: ATen leaves the rows after the last group undefined.
  at::Tensor narrow = RunNode(text("f32"), {a.to(at::kFloat), b.to(at::kFloat), Ends(), {}, {}});
  EXPECT_TRUE(narrow.narrow(0, 0, 5).to(at::kDouble).allclose(out.narrow(0, 0, 5), 1e-5, 1e-5));
}

// Documents of rows of eight positions: 3 and 5, and one that fills its row.
at::Tensor Places() {
  return at::tensor(std::vector<int64_t>{0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7}, at::kLong)
      .view({2, 8});
}

// The same by matrix products, with a mask.
at::Tensor AttendByMask(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        double scale) {
  at::Tensor positions = at::arange(8);
  at::Tensor first = (positions - Places()).view({2, 1, 8, 1});
  at::Tensor seen = positions.le(positions.unsqueeze(1)).logical_and(positions.ge(first));
  at::Tensor keys = key.repeat_interleave(query.size(1) / key.size(1), 1);
  at::Tensor values = value.repeat_interleave(query.size(1) / key.size(1), 1);
  at::Tensor scores = query.matmul(keys.transpose(2, 3)) * scale;
  scores = scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
  return scores.softmax(-1).matmul(values);
}

struct Operands {
  at::Tensor query = Random({2, 4, 8, 6}).requires_grad_();
  at::Tensor key = Random({2, 2, 8, 6}).requires_grad_();
  at::Tensor value = Random({2, 2, 8, 6}).requires_grad_();
  at::Tensor grad = Random({2, 4, 8, 6});
};

TEST(DocumentAttention, IsMaskedAttention) {
  Operands o;
  at::Tensor expected = AttendByMask(o.query, o.key, o.value, 0.5);
  std::vector<at::Tensor> grads =
      torch::autograd::grad({expected}, {o.query, o.key, o.value}, {o.grad});
  at::NoGradGuard no_grad;
  auto [out, logsumexp] = AttendToDocuments(o.query, o.key, o.value, Places(), 0.5);
  EXPECT_TRUE(out.allclose(expected, 0, 1e-12));
  auto own =
      AttendToDocumentsBackward({o.grad, o.query, o.key, o.value, out, logsumexp}, Places(), 0.5);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(own[i].allclose(grads[i], 0, 1e-12)) << i;
}

// Two ranks in head-tail order: rank 0 has positions 0, 1, 6 and 7.
TEST(DocumentAttention, PartsAddUpToTheWhole) {
  Operands o;
  at::NoGradGuard no_grad;
  auto [whole, whole_logs] = AttendToDocuments(o.query, o.key, o.value, Places(), std::nullopt);
  auto whole_grads = AttendToDocumentsBackward({o.grad, o.query, o.key, o.value, whole, whole_logs},
                                               Places(), std::nullopt);
  at::Tensor key_sum = at::zeros_like(o.key);
  const std::vector<Part> ranks[] = {{{0, 2}, {6, 2}}, {{2, 2}, {4, 2}}};
  std::vector<Part> order;
  for (const auto& parts : ranks) order.insert(order.end(), parts.begin(), parts.end());
  auto positions = [](const std::vector<Part>& parts) {
    std::vector<at::Tensor> all;
    for (const Part& part : parts) all.push_back(at::arange(part.begin, part.begin + part.size));
    return at::cat(all);
  };
  auto in_order = [&](const at::Tensor& t) { return t.index_select(2, positions(order)); };
  for (const std::vector<Part>& parts : ranks) {
    at::Tensor own = positions(parts);
    auto of = [&](const at::Tensor& t) { return t.index_select(2, own); };
    QueryPart part{parts, order, Places().index_select(1, own)};
    auto [out, logs] =
        AttendPart(part, of(o.query), in_order(o.key), in_order(o.value), std::nullopt);
    EXPECT_TRUE(out.allclose(of(whole), 0, 1e-12));
    EXPECT_TRUE(logs.allclose(of(whole_logs), 0, 1e-12));
    auto grads = AttendPartBackward(
        part, {of(o.grad), of(o.query), in_order(o.key), in_order(o.value), out, logs},
        std::nullopt);
    EXPECT_TRUE(grads[0].allclose(of(whole_grads[0]), 0, 1e-12));
    key_sum += grads[1];
  }
  EXPECT_TRUE(key_sum.allclose(in_order(whole_grads[1]), 0, 1e-12));
}

// Flash attention for CUDA, whose calls have several documents, by matrix products on the CPU.
at::Tensor Scores(const at::Tensor& query, const at::Tensor& key, double scale) {
  int64_t queries = query.size(1);
  int64_t keys = key.size(1);
  at::Tensor all = key.repeat_interleave(query.size(0) / key.size(0), 0);
  at::Tensor scores = query.matmul(all.transpose(1, 2)) * scale;
  at::Tensor later = at::ones({queries, keys}, at::kBool).triu(keys - queries + 1);
  return scores.masked_fill(later, -std::numeric_limits<double>::infinity());
}

// Calls `visit` with the begin and size of each sequence among the queries, then among the keys.
template <typename Visit>
void ForSequences(const torch::jit::Stack& stack, size_t at, const Visit& visit) {
  at::Tensor queries = stack[at].toTensor();
  at::Tensor keys = stack[at + 1].toTensor();
  EXPECT_EQ(queries.scalar_type(), at::kInt);
  EXPECT_EQ(queries.diff().max().item<int64_t>(), stack[at + 2].toInt());
  EXPECT_EQ(keys.diff().max().item<int64_t>(), stack[at + 3].toInt());
  EXPECT_TRUE(stack[at + 5].toBool());
  for (int64_t i = 0; i + 1 < queries.size(0); ++i) {
    auto part = [i](const at::Tensor& ends) {
      auto begin = ends[i].item<int64_t>();
      return Part{begin, ends[i + 1].item<int64_t>() - begin};
    };
    visit(part(queries), part(keys));
  }
}

at::Tensor HeadsFirst(const at::Tensor& tensor, const Part& part) {
  return tensor.narrow(0, part.begin, part.size).transpose(0, 1);
}

void FlashForward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::Tensor query = (*stack)[0].toTensor();
  double scale = (*stack)[10].toOptional<double>().value_or(std::pow(query.size(2), -0.5));
  at::Tensor out = at::empty_like(query);
  at::Tensor logsumexp = at::empty({query.size(1), query.size(0)}, query.options());
  ForSequences(*stack, 3, [&](const Part& queries, const Part& keys) {
    at::Tensor key = HeadsFirst((*stack)[1].toTensor(), keys);
    at::Tensor value = HeadsFirst((*stack)[2].toTensor(), keys);
    at::Tensor scores = Scores(HeadsFirst(query, queries), key, scale);
    value = value.repeat_interleave(query.size(1) / value.size(0), 0);
    HeadsFirst(out, queries).copy_(scores.softmax(-1).matmul(value));
    logsumexp.narrow(1, queries.begin, queries.size).copy_(scores.logsumexp(-1));
  });
  torch::jit::drop(*stack, op.schema().arguments().size());
  for (const at::Tensor& result : {out, logsumexp, at::Tensor(), at::Tensor(), at::Tensor()})
    stack->emplace_back(result);
}

void FlashBackward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::Tensor query = (*stack)[1].toTensor();
  double scale = (*stack)[14].toOptional<double>().value_or(std::pow(query.size(2), -0.5));
  std::vector<at::Tensor> grads;
  for (size_t i = 1; i < 4; ++i) grads.push_back(at::empty_like((*stack)[i].toTensor()));
  ForSequences(*stack, 6, [&](const Part& queries, const Part& keys) {
    at::Tensor grad = HeadsFirst((*stack)[0].toTensor(), queries);
    at::Tensor own = HeadsFirst(query, queries);
    at::Tensor key = HeadsFirst((*stack)[2].toTensor(), keys);
    at::Tensor value = HeadsFirst((*stack)[3].toTensor(), keys);
    int64_t times = own.size(0) / key.size(0);
    auto repeated = [times](const at::Tensor& x) { return x.repeat_interleave(times, 0); };
    auto summed = [times](const at::Tensor& x) { return x.unflatten(0, {-1, times}).sum(1); };
    // The softmax from the logsumexp of forward, and its gradient.
    at::Tensor logsumexp = (*stack)[5].toTensor().narrow(1, queries.begin, queries.size);
    at::Tensor shares = (Scores(own, key, scale) - logsumexp.unsqueeze(-1)).exp();
    at::Tensor to_shares = grad.matmul(repeated(value).transpose(1, 2));
    at::Tensor means = (HeadsFirst((*stack)[4].toTensor(), queries) * grad).sum(-1, true);
    at::Tensor to_scores = shares * (to_shares - means) * scale;
    HeadsFirst(grads[0], queries).copy_(to_scores.matmul(repeated(key)));
    HeadsFirst(grads[1], keys).copy_(summed(to_scores.transpose(1, 2).matmul(own)));
    HeadsFirst(grads[2], keys).copy_(summed(shares.transpose(1, 2).matmul(grad)));
  });
  torch::jit::drop(*stack, op.schema().arguments().size());
  for (const at::Tensor& grad : grads) stack->emplace_back(grad);
}

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("_flash_attention_forward",
               torch::CppFunction::makeFromBoxedFunction<&FlashForward>());
  library.impl("_flash_attention_backward",
               torch::CppFunction::makeFromBoxedFunction<&FlashBackward>());
}

// All rows, and the ranges of a rank in each row: the second begins inside a document.
TEST(DocumentAttention, OneCallHasTheResultsOfEachDocument) {
  Operands o;
  at::NoGradGuard no_grad;
  const std::vector<Part> whole = {{0, 8}};
  const std::vector<Part> order = {{0, 2}, {6, 2}, {2, 2}, {4, 2}};
  for (const std::vector<Part>& queries : {whole, {{0, 2}, {6, 2}}, {{2, 2}, {4, 2}}}) {
    std::vector<at::Tensor> own;
    for (const Part& part : queries) own.push_back(at::arange(part.begin, part.begin + part.size));
    auto of = [&](const at::Tensor& t) { return t.index_select(2, at::cat(own)); };
    QueryPart part{queries, queries == whole ? whole : order,
                   Places().index_select(1, at::cat(own))};
    auto [out, logs] = AttendPart(part, of(o.query), o.key, o.value, 0.5);
    AttendedPart tensors{of(o.grad), of(o.query), o.key, o.value, out, logs};
    auto grads = AttendPartBackward(part, tensors, 0.5);
    part.joins_documents = true;
    auto [joined, joined_logs] = AttendPart(part, of(o.query), o.key, o.value, 0.5);
    EXPECT_TRUE(joined.allclose(out, 0, 1e-12));
    EXPECT_TRUE(joined_logs.allclose(logs, 0, 1e-12));
    auto joined_grads = AttendPartBackward(part, tensors, 0.5);
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(joined_grads[i].allclose(grads[i], 0, 1e-12)) << i;
  }
}

TEST(Attrs, ChunksBecomeTheNumbersOfARank) {
  Mesh mesh({{"dp", 4}});
  SymbolTable symbols;
  AttrValue sizes = std::vector<int64_t>{symbols.Chunk(5, Axes(0), mesh), 3};
  std::vector<int64_t> expected[] = {{2, 3}, {2, 3}, {1, 3}, {0, 3}};
  for (int64_t rank = 0; rank < 4; ++rank) {
    Result<c10::IValue> value = ToIValue(sizes, mesh, symbols, SizesAt(mesh, rank));
    ASSERT_TRUE(value.ok());
    EXPECT_EQ(value->toIntVector(), expected[rank]);
  }
  EXPECT_EQ(ToIValue(sizes, mesh, symbols).diagnostics()[0].kind, Diag::kSymbolicSize);
  AttrValue named = symbols.Named("t0", 8);
  EXPECT_EQ(ToIValue(named, mesh, symbols, SizesAt(mesh, 0)).diagnostics()[0].message,
            "attribute t0 has a symbolic size without a value");
}

}  // namespace
}  // namespace heddle::run
