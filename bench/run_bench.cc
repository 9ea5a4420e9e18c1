// Measures the runtime: the overhead of a program over its kernels, a training step on one rank and
// on eight, and a bucket between processes over its collective call. Prints one JSON object;
// bench/run_bench.py compares it with PyTorch.
//
//   heddle-run-bench dispatch | step PRECISION SEQ_LEN RANKS STEPS | gather
//
// Times that are compared are measured alternately, and the minimum of many counts: other load on
// the machine only adds time.
#include <chrono>
#include <iostream>
#include <limits>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/t.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "heddle/compile/compile.h"
#include "heddle/compile/plan/presets/presets.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/launch/launcher.h"
#include "heddle/run/models/model.h"
#include "heddle/run/runtime/process/group.h"
#include "heddle/run/runtime/process/own_address.h"
#include "heddle/run/runtime/process/process_transport.h"
#include "heddle/run/runtime/rank_program.h"
#include "heddle/run/train/exact.h"
#include "heddle/run/train/session.h"

namespace heddle {
namespace {

double Seconds(const std::function<void()>& work) {
  auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Least {
  double seconds = std::numeric_limits<double>::infinity();
  void Add(double next) { seconds = std::min(seconds, next); }
};

// Repeats three tiny ops: two kernels and a view.
constexpr int64_t kRounds = 2000;

Module TinyOps() {
  std::string text = "heddle 1 local\ngraph @g(%x0: f32[8,8], %y: f32[8,8]) -> (%x" +
                     std::to_string(kRounds) + ") {\n";
  for (int64_t i = 0; i < kRounds; ++i)
    text += fmt::format(
        "  %a{0} = aten.add.Tensor(%x{0}, %y)\n  %b{0} = aten.mul.Tensor(%a{0}, %y)\n"
        "  %x{1} = aten.t(%b{0})\n",
        i, i + 1);
  return *ParseModule(text + "}\n", "bench", Ops());
}

int BenchDispatch() {
  Module module = TinyOps();
  run::RankProgram compiled = *run::RankProgram::Compile(module, module.graphs[0]);
  std::vector<at::Tensor> inputs = {at::ones({8, 8}), at::ones({8, 8})};
  Least program;
  Least kernels;
  for (int turn = 0; turn < 200; ++turn) {
    program.Add(Seconds([&] { (void)*compiled.RunAlone(inputs); }));
    kernels.Add(Seconds([&] {
      at::AutoDispatchBelowADInplaceOrView below_autograd;
      at::Tensor x = inputs[0];
      for (int64_t i = 0; i < kRounds; ++i) x = at::t(at::mul(at::add(x, inputs[1]), inputs[1]));
    }));
  }
  double nodes = 3.0 * kRounds;
  std::cout << fmt::format("{{\"program_us\": {}, \"kernels_us\": {}}}\n",
                           program.seconds / nodes * 1e6, kernels.seconds / nodes * 1e6);
  return 0;
}

// Llama 3's debug model with one sequence per rank.
class StepBench {
 public:
  StepBench(DType compute, int64_t seq_len, int64_t ranks)
      : model_(*run::MakeModel(*run::FindModel("llama3", "debugmodel"),
                               {.batch = ranks, .seq_len = seq_len},
                               {compute, run::AttentionKind::kFlash, run::Target::kCpu})) {
    Module module = *run::CaptureModel(model_, run::OptimizerOptions());
    compile::PresetOptions presets;
    presets.axes.emplace("shard", "dp");
    compile::Plan plan = *compile::MakePlan(module.graphs[0], Mesh({{"dp", ranks}}),
                                            model_.config.family->rules(), presets);
    compile::CompileReport report = *compile::Compile(module, plan, {.pipeline = "fsdp"});
    run::SessionOptions options;
    options.params = run::InitialParams(model_, 1);
    options.batches = run::SyntheticBatches(model_, 1);
    session_.emplace(*run::Session::Make(model_, module, options));
  }
  double Step() {
    return Seconds([&] { HEDDLE_CHECK(session_->Step(1e-3).ok(), "a step failed"); });
  }

 private:
  run::Model model_;
  std::optional<run::Session> session_;
};

int BenchStep(const std::vector<std::string>& args) {
  run::MakeExact();
  StepBench bench(args[1] == "bf16" ? DType::kBF16 : DType::kF32, std::stoll(args[2]),
                  std::stoll(args[3]));
  Least least;
  for (int64_t step = 0; step < std::stoll(args[4]); ++step) least.Add(bench.Step());
  std::cout << fmt::format("{{\"seconds\": {}}}\n", least.seconds);
  return 0;
}

// The parameters of a block of Llama 3 1B, split over two ranks: one bucket of 116 MiB.
constexpr const char* kBucket = R"(heddle 1 local
mesh [dp=2]
graph @g(%q: bf16[1024,2048], %k: bf16[256,2048], %v: bf16[256,2048], %o: bf16[1024,2048],
         %w1: bf16[4096,2048], %w2: bf16[1024,8192], %w3: bf16[4096,2048], %n1: bf16[1024],
         %n2: bf16[1024]) -> (%qf, %kf, %vf, %of, %f1, %f2, %f3, %m1, %m2) {
  %b! = comm.all_gather(%q, %k, %v, %o, %w1, %w2, %w3, %n1, %n2, over=[dp], why=unshard)
  %qf, %kf, %vf, %of, %f1, %f2, %f3, %m1, %m2 = comm.wait(%b!)
}
)";

int RunGatherRank(const run::PeerAddress& address) {
  run::MakeExact();
  Module module = *ParseModule(kBucket, "bench", Ops());
  const Graph& graph = module.graphs[0];
  std::unique_ptr<run::Peers> peers = *run::Peers::Meet(address, std::chrono::milliseconds(60000));
  auto transport = *run::ProcessTransport::Connect(*peers, module, c10::kCPU);
  run::RankProgram compiled =
      *run::RankProgram::Compile(module, graph, {.ranks = {address.rank}, .transport = transport});
  auto store = c10::make_intrusive<c10d::PrefixStore>("bare", peers->store());
  run::GroupPtr bare = run::MakeGlooGroup(store, address.rank, address.world_size, peers->timeout(),
                                          *run::OwnAddresses(*peers));
  std::vector<at::Tensor> inputs;
  int64_t elements = 0;
  for (const Input& input : graph.inputs()) {
    std::span<const Dim> dims = graph.types().dims(graph.type(input.value));
    inputs.push_back(at::ones({dims.data(), dims.size()}, at::kBFloat16));
    elements += inputs.back().numel();
  }
  Least with_bucket;
  Least alone;
  at::Tensor send = at::ones({elements}, at::kBFloat16);
  for (int turn = 0; turn < 40; ++turn) {
    with_bucket.Add(Seconds([&] { (void)*compiled.RunAlone(inputs); }));
    alone.Add(Seconds([&] {
      at::Tensor received = at::empty({elements * address.world_size}, send.options());
      bare->_allgather_base(received, send)->wait();
    }));
  }
  if (address.rank == 0)
    std::cout << fmt::format("{{\"bucket_seconds\": {}, \"bare_seconds\": {}, \"mib\": {}}}\n",
                             with_bucket.seconds, alone.seconds,
                             static_cast<double>(elements * address.world_size * 2) / (1 << 20));
  std::cout.flush();
  return 0;
}

int BenchGather() {
  std::optional<run::PeerAddress> address = *run::PeerAddress::FromEnvironment();
  if (address) return RunGatherRank(*address);
  run::SignalGate gate;
  run::OwnStore store = *run::OpenStore(std::chrono::milliseconds(60000));
  run::Job job{.program = run::ThisProgram(),
               .args = {"gather"},
               .processes = 2,
               .environment = {{"MASTER_ADDR", "127.0.0.1"},
                               {"MASTER_PORT", std::to_string(store.port)},
                               {"TORCHELASTIC_USE_AGENT_STORE", "True"}}};
  return run::RunJob(job, gate)->ok() ? 0 : 1;
}

int Main(const std::vector<std::string>& args) {
  if (args.size() == 1 && args[0] == "dispatch") return BenchDispatch();
  if (args.size() == 5 && args[0] == "step") return BenchStep(args);
  if (args.size() == 1 && args[0] == "gather") return BenchGather();
  std::cerr << "heddle-run-bench dispatch | step PRECISION SEQ_LEN RANKS STEPS | gather\n";
  return 1;
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  return heddle::Main(std::vector<std::string>(argv + 1, argv + argc));
}
