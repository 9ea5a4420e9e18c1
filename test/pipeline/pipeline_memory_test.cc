// Compares the predicted memory of each coordinate of a pipeline with the bytes that it allocates
// at every node of three steps and their validation.
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "heddle/api/step_graphs.h"
#include "heddle/core/ir/program.h"
#include "heddle/run/train/run_memory.h"
#include "test/parallel/counting_allocator.h"

namespace heddle {
namespace {

// Transfers that copy, as those between processes do: each coordinate owns its tensors.
class CopyingTransfers : public run::Transfers {
 public:
  std::unique_ptr<run::Pending> Send(const Transfer& transfer, at::Tensor tensor) override {
    const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
    {
      std::lock_guard lock(mutex_);
      waiting_[KeyOf(transfer)].emplace_back(data, data + tensor.nbytes());
    }
    changed_.notify_all();
    return std::make_unique<Sent>();
  }

  std::unique_ptr<run::Pending> Receive(const Transfer& transfer, at::IntArrayRef sizes,
                                        const at::TensorOptions& type) override {
    return std::make_unique<Received>(*this, KeyOf(transfer), at::empty(sizes, type));
  }

 private:
  using Key = std::tuple<int64_t, int64_t, std::string>;
  static Key KeyOf(const Transfer& transfer) { return {transfer.from, transfer.to, transfer.tag}; }

  struct Sent : run::Pending {
    std::vector<run::Tensors> Finish() override { return {{}}; }
  };
  struct Received : run::Pending {
    Received(CopyingTransfers& transfers, Key key, at::Tensor to)
        : transfers(transfers), key(std::move(key)), to(std::move(to)) {}
    std::vector<run::Tensors> Finish() override {
      std::unique_lock lock(transfers.mutex_);
      std::deque<std::vector<std::byte>>& sent = transfers.waiting_[key];
      transfers.changed_.wait(lock, [&] { return !sent.empty(); });
      std::memcpy(to.mutable_data_ptr(), sent.front().data(), to.nbytes());
      sent.pop_front();
      return {{std::move(to)}};
    }
    CopyingTransfers& transfers;
    Key key;
    at::Tensor to;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, std::deque<std::vector<std::byte>>> waiting_;
};

struct Job {
  const char* schedule;
  int64_t pipeline;
  int64_t shard = 1;
  bool tied = false;
  const char* checkpoint = "";
};

void PrintTo(const Job& job, std::ostream* out) {
  *out << fmt::format("{} pp={} dp={}{} {}", job.schedule, job.pipeline, job.shard,
                      job.tied ? " tied" : "", job.checkpoint);
}

struct Options {
  ModelOptions model = {.precision = DType::kF32, .deterministic = true};
  ParallelOptions parallel;
  search::CompileSettings compile;
};

Options OptionsOf(const Job& job) {
  Options options;
  options.model.model = "llama3";
  options.model.flavor = "debugmodel";
  options.model.device = run::Target::kCpu;
  options.model.seq_len = 32;
  options.model.local_batch_size = 4;
  options.model.sizes = {{"n_layers", 8},   {"dim", 64},     {"n_heads", 4},
                         {"n_kv_heads", 2}, {"ffn_dim", 96}, {"vocab_size", 512}};
  if (job.tied) options.model.switches["tied"] = true;
  options.parallel.pipeline.degree = job.pipeline;
  options.parallel.pipeline.schedule = job.schedule;
  options.parallel.degrees = {1, job.shard, 1, 1};
  options.compile.checkpoint_mode = job.checkpoint;
  return options;
}

// The most bytes that the ranks of a coordinate have at a node, in this thread.
int64_t MostBytes(const run::Model& model, const run::StepModules& modules,
                  const run::SessionOptions& options) {
  int64_t before = CountingAllocator::live;
  int64_t most = 0;
  run::Session session = *run::Session::Make(model, modules, options);
  run::Session::Watcher watch = [&](const run::RankProgram&) -> run::RankProgram::Observer {
    return [&](NodeId, std::span<const run::Tensors>) {
      most = std::max(most, CountingAllocator::live - before);
    };
  };
  run::BatchSource validation = run::SyntheticBatches(model, 2);
  for (int step = 1; step <= 3; ++step) {
    EXPECT_TRUE(session.Step(1e-3, watch).ok());
    EXPECT_TRUE(session.Evaluate(validation, step, watch).ok());
  }
  return most;
}

class PipelineMemory : public testing::TestWithParam<Job> {};

TEST_P(PipelineMemory, IsWhatWasPredictedForEachCoordinate) {
  at::set_num_threads(1);
  CountingAllocator allocator;
  Options given = OptionsOf(GetParam());
  Result<CompiledStep> compiled =
      CompileStep({given.model, given.parallel, given.compile, {}, 0, /*validates=*/true});
  ASSERT_TRUE(compiled.ok()) << Format(compiled.diagnostics());
  const run::Model& model = compiled->planned.model;
  const run::StepModules modules = compiled->graphs.modules();
  std::vector<run::RunMemory> predicted =
      run::MemoryOfRun(modules, /*remembers=*/false, /*with_host=*/true);
  ASSERT_EQ(predicted.size(), static_cast<size_t>(GetParam().pipeline));

  const Mesh& mesh = modules.step->mesh;
  AxisId axis = *ProgramAxis(*modules.step);
  auto transfers = std::make_shared<CopyingTransfers>();
  std::vector<int64_t> most(predicted.size());
  std::vector<std::thread> threads;
  for (size_t c = 0; c < most.size(); ++c) {
    run::SessionOptions options;
    options.program.share_results = false;
    options.program.transfers = transfers;
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      if (mesh.Coordinate(rank, axis) == static_cast<int64_t>(c))
        options.program.ranks.push_back(rank);
    }
    options.params = run::InitialParams(model, 1);
    options.batches = run::SyntheticBatches(model, 1);
    threads.emplace_back([&, c, options] {
      at::init_num_threads();
      most[c] = MostBytes(model, modules, options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t c = 0; c < most.size(); ++c) {
    // Losses and numbers of the step.
    constexpr int64_t kScalars = 4096;
    int64_t bytes = predicted[c].peak.value * GetParam().shard;
    EXPECT_LE(most[c], bytes + kScalars) << "coordinate " << c;
    EXPECT_GE(static_cast<double>(most[c]), 0.995 * static_cast<double>(bytes))
        << "coordinate " << c;
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, PipelineMemory,
                         testing::Values(Job{"GPipe", 4}, Job{"1F1B", 2, 2}, Job{"1F1B", 4},
                                         Job{"1F1B", 2, 1, true}, Job{"1F1B", 2, 1, false, "full"},
                                         Job{"Interleaved1F1B", 2, 2}, Job{"ZB-H1", 4},
                                         Job{"ZBV", 2, 2}, Job{"ZBV", 2, 1, true},
                                         Job{"DualPipeV", 2}));

}  // namespace
}  // namespace heddle
