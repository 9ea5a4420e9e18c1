// Context parallelism: results agree with one rank, collectives move the bytes that docs/context.md
// states, and every rank keeps its share of the activations.
#include <map>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/core/analysis/memory.h"
#include "heddle/core/analysis/stats.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/runtime/shards.h"
#include "heddle/run/train/exact.h"
#include "test/checks/narrow_model.h"
#include "test/parallel/training.h"

namespace heddle {
namespace {

Layout Ranks(int64_t context, const run::ContextSplit& split, int64_t tensor = 1) {
  return {"context", 1, 1, tensor, true, true, 1, 1, context, split};
}
constexpr Layout kOneRank = {"one", 1, 1};

at::Tensor WholeGradient(const run::Session& session, size_t param) {
  const Graph& graph = session.program().graph();
  const Input& input = graph.inputs()[*session.InputOf(run::StateKind::kParam, param)];
  run::Tensors parts;
  for (size_t at = 0; at < session.ranks().size(); ++at)
    parts.push_back(session.state(run::StateKind::kGrad, at, param));
  std::span<const Dim> sizes = graph.types().dims(run::WholeType(graph, input.value, input.global));
  return *run::Assemble(parts, graph.placements()[input.global.placement],
                        session.program().module().mesh, {sizes.data(), sizes.size()});
}

// In f64, ranks with parts of a sequence compute the losses and gradients of one rank.
TEST(Context, AgreesWithOneRank) {
  run::MakeExact();
  const Debug families[] = {{"llama3", "debugmodel", DType::kF64, 2},
                            {"qwen3", "debugmodel", DType::kF64},
                            {"qwen3", "debugmodel_moe", DType::kF64},
                            {"deepseek_v3", "debugmodel", DType::kF64},
                            {"llama3", "debugmodel", DType::kF64, 2, true},
                            {"qwen3", "debugmodel", DType::kF64, 0, true},
                            {"deepseek_v3", "debugmodel", DType::kF64, 0, true}};
  for (const Debug& debug : families) {
    SmallJob whole(debug, kOneRank, /*rows=*/1);
    std::vector<Layout> layouts = {Ranks(4, kInOrder), Ranks(4, kHeadTail), Ranks(4, kByHeads),
                                   Ranks(2, kHeadTail, 2)};
    if (!debug.documents) {
      layouts.push_back(Ranks(4, kRing));
      layouts.push_back(Ranks(4, kRingHeadTail));
      layouts.push_back(Ranks(2, kRingHeadTail, 2));
    }
    for (const Layout& layout : layouts) {
      SCOPED_TRACE(fmt::format("{} {} {} {}", debug.family, debug.flavor, layout.context,
                               layout.context_split.heads));
      SmallJob job(debug, layout, /*rows=*/1);
      std::unique_ptr<run::Session> parts = *job.MakeSession(job.local());
      std::unique_ptr<run::Session> single = *whole.MakeSession(whole.local());
      for (int64_t step = 1; step <= 2; ++step) {
        ASSERT_TRUE(parts->Step(1e-3).ok());
        ASSERT_TRUE(single->Step(1e-3).ok());
        double loss = single->loss(0).item<double>();
        EXPECT_NEAR(parts->loss(0).item<double>(), loss, 1e-12 * loss);
        if (step > 1) break;
        for (size_t p = 0; p < job.model().params.size(); ++p) {
          at::Tensor expected = WholeGradient(*single, p);
          double most = at::max(at::abs(expected)).item().toDouble();
          at::Tensor apart = at::abs(WholeGradient(*parts, p) - expected);
          double error = at::max(apart).item().toDouble();
          EXPECT_LE(error, 1e-12 * most) << job.model().params[p].name;
        }
      }
    }
  }
}

// A packed row has the loss and gradients of its documents in rows of their own.
TEST(Documents, TrainLikeRowsOfTheirOwn) {
  run::MakeExact();
  for (const char* family : {"llama3", "qwen3", "deepseek_v3"}) {
    SCOPED_TRACE(family);
    run::ModelConfig config = *run::FindModel(family, "debugmodel");
    MakeNarrow(config);
    // Eager mixtures lack f64.
    config.moe = {};
    const std::vector<int64_t> lengths = {5, 1, 6};
    auto model = [&](int64_t length, bool documents) {
      return *run::MakeModel(config, {.batch = 1, .seq_len = length, .documents = documents},
                             {.compute = DType::kF64});
    };
    run::Model packed = model(12, true);
    run::Batch batch = run::MakeBatch(config.vocab_size, 1, 12, 3, 1);
    int64_t at = 0;
    for (int64_t length : lengths) batch.labels[0][(at += length) - 1].fill_(run::kIgnoredLabel);
    std::vector<at::Tensor> params;
    for (const run::ParamSpec& spec : packed.params)
      params.push_back(run::InitParam(packed, spec, 3, DType::kF64).requires_grad_());
    auto losses = [&](const run::Model& step, const at::Tensor& tokens, const at::Tensor& labels) {
      std::vector<at::Tensor> inputs;
      for (const run::StepInput& input : step.inputs) {
        if (input.role == InputRole::kBuffer) inputs.push_back(run::MakeBuffer(step, input));
      }
      if (step.batch.documents)
        inputs.push_back(run::DocumentPositions(labels.eq(run::kIgnoredLabel)));
      inputs.push_back(tokens);
      inputs.push_back(labels);
      return step.loss_sum(params, inputs).loss;
    };
    at::Tensor loss = losses(packed, batch.tokens, batch.labels);
    at::Tensor apart = at::zeros({}, at::kDouble);
    at = 0;
    for (int64_t length : lengths) {
      run::Model alone = model(length, false);
      apart = apart +
              losses(alone, batch.tokens.narrow(1, at, length), batch.labels.narrow(1, at, length));
      at += length;
    }
    EXPECT_NEAR(loss.item<double>(), apart.item<double>(), 1e-12 * loss.item<double>());
    std::vector<at::Tensor> grads = torch::autograd::grad({loss}, params);
    std::vector<at::Tensor> expected = torch::autograd::grad({apart}, params);
    for (size_t p = 0; p < params.size(); ++p) {
      double most = at::max(at::abs(expected[p])).item<double>();
      double error = at::max(at::abs(grads[p] - expected[p])).item<double>();
      EXPECT_LE(error, 1e-12 * most) << packed.params[p].name;
    }
  }
}

// Bytes of the collectives of context parallelism, by kind and phase.
std::map<std::string, int64_t> BytesMoved(const Module& module) {
  std::map<std::string, int64_t> out;
  for (const CollectiveStats& stats : CountCollectives(module, module.graphs[0])) {
    if (stats.why == "context") out[stats.phase + " " + stats.kind] += stats.bytes.value;
  }
  return out;
}

TEST(Context, CollectivesMoveTheBytesOfTheFormulas) {
  constexpr int64_t kPositions = 32;
  for (int64_t ranks : {2, 4}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      // Two heads of keys and values: fewer than four ranks.
      const Debug debug{"llama3", "debugmodel", dtype, 2};
      const int64_t size = dtype == DType::kF32 ? 4 : 2;
      SmallJob gathered(debug, Ranks(ranks, kHeadTail), /*rows=*/1, kPositions);
      const run::ModelConfig& config = gathered.model().config;
      const int64_t keys = config.n_kv_heads;
      const int64_t elements = config.n_layers * config.head_size() * kPositions;
      const std::map<std::string, int64_t> of_gathers = {
          {"fwd all_gather", 2 * keys * elements * size},
          {"bwd all_gather", 2 * keys * elements * size},
          {"bwd reduce_scatter", 2 * keys * elements * 4}};
      EXPECT_EQ(BytesMoved(gathered.local()), of_gathers) << ranks << " ranks, " << Name(dtype);
      // Keys and values of one rank, to every other rank; gradients, in f32, once around the ring.
      SmallJob ring(debug, Ranks(ranks, kRingHeadTail), /*rows=*/1, kPositions);
      const int64_t part = 2 * keys * elements / ranks;
      const std::map<std::string, int64_t> of_shifts = {
          {"fwd shift", (ranks - 1) * part * size},
          {"bwd shift", (ranks - 1) * part * size + ranks * part * 4}};
      EXPECT_EQ(BytesMoved(ring.local()), of_shifts) << ranks << " ranks, " << Name(dtype);
      SmallJob exchanged(debug, Ranks(ranks, kByHeads), /*rows=*/1, kPositions);
      const int64_t heads = 2 * config.n_heads + 2 * std::max(keys, ranks);
      const std::map<std::string, int64_t> of_exchanges = {
          {"fwd all_to_all", heads * elements / ranks * size},
          {"bwd all_to_all", heads * elements / ranks * size}};
      EXPECT_EQ(BytesMoved(exchanged.local()), of_exchanges) << ranks << " ranks, " << Name(dtype);
    }
  }
}

// Recomputes what is marked, as compilation does.
void Recompute(Module& module) {
  Result<compile::RunReport> done = compile::RunPipeline(
      module, *compile::ParsePipeline("clean, rematerialize", compile::Passes()));
  ASSERT_TRUE(done.ok()) << Format(done.diagnostics());
}

TEST(Context, LatentsMoveInPlaceOfKeysAndValues) {
  constexpr int64_t kPositions = 32;
  for (int64_t ranks : {2, 4}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      SmallJob job({"deepseek_v3", "debugmodel", dtype}, Ranks(ranks, kHeadTail), /*rows=*/1,
                   kPositions);
      const run::ModelConfig& config = job.model().config;
      const int64_t latents =
          config.n_layers * kPositions * (config.mla.kv_rank + config.mla.rope_dim);
      const int64_t size = dtype == DType::kF32 ? 4 : 2;
      Recompute(job.local());
      const std::map<std::string, int64_t> expected = {{"fwd all_gather", latents * size},
                                                       {"bwd all_gather", latents * size},
                                                       {"bwd reduce_scatter", latents * 4}};
      EXPECT_EQ(BytesMoved(job.local()), expected) << ranks << " ranks, " << Name(dtype);
    }
  }
}

// Bytes of activations for 32 more positions, which leaves out weights.
int64_t KeptActivations(const Layout& layout, const char* family = "llama3") {
  const Debug debug{family, "debugmodel", DType::kF32};
  auto kept = [&](int64_t positions) {
    SmallJob job(debug, layout, /*rows=*/1, positions);
    Recompute(job.local());
    return KeptForBackward(job.local().graphs[0]).value;
  };
  return kept(64) - kept(32);
}

TEST(Context, ARankKeepsItsShareOfActivations) {
  const int64_t whole = KeptActivations(kOneRank);
  // Two layers of 64 columns in f32: with heads, the outputs of attention are kept in both forms.
  const int64_t outputs = 2 * 32 * 64 * 4;
  ASSERT_GT(whole, outputs);
  for (int64_t ranks : {2, 4}) {
    EXPECT_EQ(KeptActivations(Ranks(ranks, kInOrder)) * ranks, whole);
    EXPECT_EQ(KeptActivations(Ranks(ranks, kHeadTail)) * ranks, whole);
    EXPECT_EQ(KeptActivations(Ranks(ranks, kRingHeadTail)) * ranks, whole);
    EXPECT_EQ(KeptActivations(Ranks(ranks, kByHeads)) * ranks, whole + outputs);
  }
}

// Memory for 96 more positions while attention runs, above what is kept.
int64_t MemoryOfAttention(const Layout& layout) {
  const Debug debug{"llama3", "debugmodel", DType::kF32};
  auto most = [&](int64_t positions) {
    SmallJob job(debug, layout, /*rows=*/1, positions);
    Recompute(job.local());
    const Graph& graph = job.local().graphs[0];
    MemoryTimeline memory = ComputeMemoryTimeline(graph, Liveness(graph));
    Bytes peak;
    for (NodeId node : graph.nodes()) {
      if (graph[node].op == op::shard_attention_backward)
        peak = std::max(peak, memory.live[node.index()]);
    }
    return (peak - KeptForBackward(graph)).value;
  };
  return most(128) - most(32);
}

// A ring has two parts of keys and values at a time, so its memory falls as ranks are added.
TEST(Context, ARingHasPartsOfKeysAndValues) {
  EXPECT_LT(MemoryOfAttention(Ranks(4, kRing)), MemoryOfAttention(Ranks(4, kInOrder)));
  EXPECT_LT(MemoryOfAttention(Ranks(8, kRing)), MemoryOfAttention(Ranks(8, kInOrder)));
}

// Keys and values from latents are computed again, so ranks keep even less.
TEST(Context, ARankKeepsItsShareOfLatents) {
  const int64_t whole = KeptActivations(kOneRank, "deepseek_v3");
  for (int64_t ranks : {2, 4})
    EXPECT_LT(KeptActivations(Ranks(ranks, kHeadTail), "deepseek_v3") * ranks, whole);
}

}  // namespace
}  // namespace heddle
