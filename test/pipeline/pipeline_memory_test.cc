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
  int64_t gather_every = 0;
  int64_t reduce_every = 0;
  int64_t global_batch = 0;
};

void PrintTo(const Job& job, std::ostream* out) {
  *out << fmt::format("{} pp={} dp={}{} {} gather={} reduce={} batch={}", job.schedule,
                      job.pipeline, job.shard, job.tied ? " tied" : "", job.checkpoint,
                      job.gather_every, job.reduce_every, job.global_batch);
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
  options.parallel.pipeline.gather_every = job.gather_every;
  options.parallel.pipeline.reduce_every = job.reduce_every;
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

// By coordinate: the predicted peak of a rank, and the bytes that all its ranks allocate.
struct Memory {
  std::vector<int64_t> predicted;
  std::vector<int64_t> allocated;
};

Memory MemoryOf(const Job& job) {
  at::set_num_threads(1);
  CountingAllocator allocator;
  Options given = OptionsOf(job);
  CompiledStep compiled = *CompileStep(
      {given.model, given.parallel, given.compile, {}, job.global_batch, /*validates=*/true});
  const run::Model& model = compiled.planned.model;
  const run::StepModules modules = compiled.graphs.modules();
  Memory memory;
  for (const run::RunMemory& one :
       run::MemoryOfRun(modules, /*remembers=*/false, /*with_host=*/true))
    memory.predicted.push_back(one.peak.value);

  const Mesh& mesh = modules.step->mesh;
  AxisId axis = *ProgramAxis(*modules.step);
  auto transfers = std::make_shared<CopyingTransfers>();
  memory.allocated.resize(memory.predicted.size());
  std::vector<std::thread> threads;
  for (size_t c = 0; c < memory.allocated.size(); ++c) {
    run::SessionOptions options;
    options.program.share_results = false;
    options.program.transfers = transfers;
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      if (mesh.Coordinate(rank, axis) == static_cast<int64_t>(c))
        options.program.ranks.push_back(rank);
    }
    options.params = run::InitialParams(model, 1);
    options.batches = run::SyntheticBatches(model, 1);
    options.accumulated = compiled.planned.micro_batches();
    threads.emplace_back([&, c, options] {
      at::init_num_threads();
      memory.allocated[c] = MostBytes(model, modules, options);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return memory;
}

class PipelineMemory : public testing::TestWithParam<Job> {};

TEST_P(PipelineMemory, IsWhatWasPredictedForEachCoordinate) {
  Memory memory = MemoryOf(GetParam());
  ASSERT_EQ(memory.predicted.size(), static_cast<size_t>(GetParam().pipeline));
  for (size_t c = 0; c < memory.predicted.size(); ++c) {
    // Losses and numbers of the step.
    constexpr int64_t kScalars = 4096;
    int64_t bytes = memory.predicted[c] * GetParam().shard;
    EXPECT_LE(memory.allocated[c], bytes + kScalars) << "coordinate " << c;
    EXPECT_GE(static_cast<double>(memory.allocated[c]), 0.995 * static_cast<double>(bytes))
        << "coordinate " << c;
  }
}

TEST(MemoryOfGroups, FallsWithGroupsOfOneMicroBatch) {
  Job job{"1F1B", 2, 2};
  std::vector<int64_t> once = MemoryOf(job).allocated;
  job.gather_every = 1;
  std::vector<int64_t> gathered = MemoryOf(job).allocated;
  job.reduce_every = 1;
  std::vector<int64_t> both = MemoryOf(job).allocated;
  for (size_t c = 0; c < once.size(); ++c) {
    EXPECT_LT(gathered[c], once[c]) << "coordinate " << c;
    EXPECT_LT(both[c], gathered[c]) << "coordinate " << c;
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, PipelineMemory,
                         testing::Values(Job{"GPipe", 4}, Job{"1F1B", 2, 2}, Job{"1F1B", 4},
                                         Job{"1F1B", 2, 1, true}, Job{"1F1B", 2, 1, false, "full"},
                                         Job{"Interleaved1F1B", 2, 2}, Job{"ZB-H1", 4},
                                         Job{"ZBV", 2, 2}, Job{"ZBV", 2, 1, true},
                                         Job{"DualPipeV", 2}));

INSTANTIATE_TEST_SUITE_P(
    Groups, PipelineMemory,
    testing::Values(
        Job{.schedule = "1F1B", .pipeline = 2, .shard = 2, .gather_every = 1, .reduce_every = 1},
        Job{.schedule = "Interleaved1F1B", .pipeline = 2, .shard = 2, .gather_every = 2},
        Job{.schedule = "GPipe",
            .pipeline = 2,
            .shard = 2,
            .tied = true,
            .gather_every = 1,
            .reduce_every = 3},
        Job{.schedule = "1F1B", .pipeline = 2, .shard = 2, .global_batch = 24}));

}  // namespace
}  // namespace heddle
