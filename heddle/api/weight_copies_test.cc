// Sessions whose parameters have copies (heddle/core/kernel/weight_copies.h): on a CPU, with ATen
// for the work of the kernels.
#include <gtest/gtest.h>

#include "heddle/api/step_graphs.h"
#include "heddle/core/kernel/kernel_memory.h"
#include "heddle/run/runtime/device/test/aten_kernels.h"
#include "heddle/run/train/run_memory.h"

namespace heddle::run {
namespace {

struct TestStep {
  PlannedStep planned;
  StepGraphs graphs;
};
// A step with the optimizer of a GPU. The logits are larger than the gradients, so copies do not
// raise the peak.
TestStep CompiledFor(int64_t ranks, int64_t micro_batches) {
  static const ModelOptions model = [] {
    ModelOptions options;
    options.seq_len = 256;
    options.device = Target::kCpu;
    options.attention = AttentionKind::kMath;
    options.sizes = {{"n_layers", 1},   {"dim", 32},     {"n_heads", 2},
                     {"n_kv_heads", 2}, {"ffn_dim", 48}, {"vocab_size", 256}};
    return options;
  }();
  static const search::CompileSettings compile;
  ParallelOptions parallel;
  // Replicas: shards of parameters are cast just before they are gathered.
  parallel.degrees[0] = ranks;
  CaptureOptions capture{.lr_on_device = true, .optimizer = OptimizerOptions(), .accumulate = true};
  PlannedStep planned = *PlanStep(model, parallel, capture, ranks * micro_batches);
  search::CompileJob job = *compile.JobFor(planned.plan);
  Result<StepGraphs> graphs =
      CompilePasses({.micro_batches = micro_batches, .optimizer = {}, .validates = true},
                    [&](CaptureOptions other) -> Result<Module> {
                      other.lr_on_device = true;
                      HEDDLE_TRY(PlannedStep pass, PlanPass(model, job.plan, other));
                      HEDDLE_RETURN_IF_ERROR(compile::Compile(pass.module, job.plan, job.options));
                      return std::move(pass.module);
                    });
  EXPECT_TRUE(graphs.ok()) << Format(graphs.diagnostics());
  return {std::move(planned), *std::move(graphs)};
}

// Recording computes nothing, and a replay computes everything again.
class ReplayingRecorder : public RunRecorder {
 public:
  explicit ReplayingRecorder(const std::shared_ptr<WeightCopies>& copies) : copies_(copies) {}

  Result<std::vector<Tensors>> Run(const RankProgram& program,
                                   std::span<const Tensors> inputs) override {
    return program.Run(inputs);
  }
  Result<std::unique_ptr<RecordedRun>> Record(const RankProgram& program,
                                              std::span<const Tensors> inputs) override {
    Tensors updated;
    for (const Tensors& of_rank : inputs)
      updated.insert(updated.end(), of_rank.begin(), of_rank.end());
    for (const auto& of_rank : copies_->of_rank) {
      for (const auto& [param, copy] : of_rank) updated.push_back(copy);
    }
    Tensors before;
    for (const at::Tensor& tensor : updated) before.push_back(tensor.clone());
    HEDDLE_TRY(std::vector<Tensors> outputs, program.Run(inputs));
    for (size_t i = 0; i < updated.size(); ++i) updated[i].copy_(before[i]);
    return std::unique_ptr<RecordedRun>(std::make_unique<Recorded>(
        program, std::vector<Tensors>(inputs.begin(), inputs.end()), std::move(outputs)));
  }

 private:
  class Recorded : public RecordedRun {
   public:
    Recorded(const RankProgram& program, std::vector<Tensors> inputs, std::vector<Tensors> outputs)
        : program_(program), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}
    Status Replay() override {
      HEDDLE_TRY(std::vector<Tensors> again, program_.Run(inputs_));
      for (size_t at = 0; at < again.size(); ++at) {
        for (size_t o = 0; o < again[at].size(); ++o) outputs_[at][o].copy_(again[at][o]);
      }
      return Done{};
    }
    const std::vector<Tensors>& outputs() const override { return outputs_; }

   private:
    const RankProgram& program_;
    std::vector<Tensors> inputs_;
    std::vector<Tensors> outputs_;
  };

  const std::shared_ptr<WeightCopies>& copies_;
};

// Two sessions of a job: with kernels, copies and recordings, and with ATen alone.
struct Sessions {
  explicit Sessions(const TestStep& step) {
    SessionOptions options;
    options.params = InitialParams(step.planned.model, 1);
    options.batches = SyntheticBatches(step.planned.model, 1);
    options.accumulated = step.planned.micro_batches();
    plain = Made(step, options);
    options.kernels = [this](const Graph& graph, const std::shared_ptr<WeightCopies>& shared) {
      copies = shared;
      return ArrangeKernels(graph, kernels, shared);
    };
    options.recorder = [this]() -> Result<std::unique_ptr<RunRecorder>> {
      return std::unique_ptr<RunRecorder>(std::make_unique<ReplayingRecorder>(copies));
    };
    options.notice = [](const std::string& line) { ADD_FAILURE() << line; };
    copied = Made(step, options);
  }
  static std::unique_ptr<Session> Made(const TestStep& step, const SessionOptions& options) {
    Result<Session> session = Session::Make(step.planned.model, step.graphs.modules(), options);
    EXPECT_TRUE(session.ok()) << Format(session.diagnostics());
    return std::make_unique<Session>(*std::move(session));
  }

  // Runs a step of both. With an observer, ATen runs every node.
  void Step(bool watched) {
    GraphRun::Watcher watch;
    if (watched) watch = [](const RankProgram&) { return [](NodeId, std::span<const Tensors>) {}; };
    for (Session* session : {copied.get(), plain.get()}) {
      Status status = session->Step(1e-2, session == copied.get() ? watch : GraphRun::Watcher());
      ASSERT_TRUE(status.ok()) << Format(status.diagnostics());
    }
  }
  void ExpectEqual(const TestStep& step, const std::string& where) const {
    EXPECT_EQ(copied->loss(0).item<double>(), plain->loss(0).item<double>()) << where;
    for (size_t at = 0; at < copied->ranks().size(); ++at) {
      for (size_t p = 0; p < step.planned.model.params.size(); ++p) {
        for (StateKind kind : kStateKinds) {
          at::Tensor a = copied->state(kind, at, p);
          at::Tensor b = plain->state(kind, at, p);
          EXPECT_TRUE(a.defined() == b.defined() && (!a.defined() || a.equal(b)))
              << where << ", rank " << at << ", " << step.planned.model.params[p].name << " "
              << Name(kind);
        }
      }
    }
  }

  AtenKernels kernels;
  std::shared_ptr<WeightCopies> copies;
  std::unique_ptr<Session> copied;
  std::unique_ptr<Session> plain;
};

// Copies are those of the parameters after a step that is taken back, after a step without kernels,
// and in every micro-batch and validation.
TEST(WeightCopies, HaveTheBitsOfCasts) {
  for (auto [ranks, micro_batches] : {std::pair<int64_t, int64_t>{1, 1}, {1, 3}, {2, 2}}) {
    TestStep step = CompiledFor(ranks, micro_batches);
    Sessions sessions(step);
    ASSERT_TRUE(sessions.copies->params);
    EXPECT_GE(sessions.copies->params->size(), 3u);
    BatchSource validation = SyntheticBatches(step.planned.model, 2);
    for (int number = 1; number <= 6; ++number) {
      std::string where = fmt::format("{} ranks, {} parts, step {}", ranks, micro_batches, number);
      for (Session* session : {sessions.copied.get(), sessions.plain.get()}) session->Remember();
      sessions.Step(/*watched=*/number == 5);
      sessions.ExpectEqual(step, where);
      bool undone = number == 2 || number == 4;
      for (Session* session : {sessions.copied.get(), sessions.plain.get()}) {
        if (undone) session->UndoStep();
      }
      if (number % 3 != 1) continue;
      EXPECT_EQ(*sessions.copied->Evaluate(validation, number),
                *sessions.plain->Evaluate(validation, number))
          << where;
    }
    for (size_t at = 0; at < sessions.copied->ranks().size(); ++at) {
      for (const auto& [param, copy] : sessions.copies->of_rank[at])
        EXPECT_TRUE(
            copy.equal(sessions.copied->state(StateKind::kParam, at, static_cast<size_t>(param))
                           .to(at::kBFloat16)));
    }
  }
}

// The memory of a run contains the copies once, whether or not a graph reads them.
TEST(WeightCopies, AreStateOfTheRun) {
  TestStep step = CompiledFor(1, 2);
  std::optional<std::set<int64_t>> copies;
  Bytes bytes;
  auto memory = [&](bool with) {
    copies = with ? std::nullopt : std::optional(std::set<int64_t>());
    return MemoryOfRun(step.graphs.modules(), /*remembers=*/false, /*with_host=*/false,
                       [&](const Graph& graph) -> GraphPeak {
                         KernelMemory one = MemoryWithKernels(graph, copies);
                         if (!copies) {
                           copies = one.copied;
                           bytes = one.copies;
                         }
                         return {one.peak, one.largest, one.copies};
                       })[0];
  };
  RunMemory with = memory(true);
  RunMemory without = memory(false);
  EXPECT_GT(bytes.value, 0);
  EXPECT_EQ(with.state.value - without.state.value, bytes.value);
  EXPECT_GE(with.peak, without.peak);
}

}  // namespace
}  // namespace heddle::run
