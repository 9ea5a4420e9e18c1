// Ranks as processes over Gloo: they have the bits of lockstep, and end with a clear error when a
// rank is lost.
//
// The test starts itself once per rank: `process_test worker NAME`, with RANK set, runs a worker
// and exits with its code.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <map>

#include <unistd.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/randn.h>

#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/launch/launcher.h"
#include "heddle/run/runtime/process/process_transport.h"
#include "heddle/run/runtime/rank_program.h"
#include "heddle/run/runtime/shards.h"

namespace heddle {
namespace {

using std::chrono::milliseconds;

constexpr int kWrongBits = 2;
constexpr int kFault = 4;

// All collectives, two communicators over the same ranks, groups within a mesh, several tensors and
// types in one launch, and parts of different sizes.
constexpr const char* kCollectives = R"(heddle 1 local
mesh [dp=2, tp=2]
graph @g(%x: f32[6,5], %y: bf16[4], %z: f32[3]) -> (%a, %b, %c, %d, %e, %f, %g, %h, %i) {
  %a! = comm.all_gather(%x, over=[dp], why=unshard)
  %b! = comm.reduce_scatter(%x, over=[dp,tp], why=grad)
  %cd! = comm.all_reduce(%y, %z, over=[tp], why=grad) : async (bf16[4], f32[3]) stream=1
  %f! = comm.all_to_all(%x, over=[tp], split_dim=0, concat_dim=1, why=expert)
  %a = comm.wait(%a!)
  %e! = comm.all_reduce(%z, over=[dp], op=max, why=norm)
  %g! = comm.all_reduce(%z, over=[tp], op=avg, why=norm)
  %hi! = comm.shift(%x, %y, over=[dp,tp], why=context)
  %c, %d = comm.wait(%cd!)
  %b = comm.wait(%b!)
  %e = comm.wait(%e!)
  %f = comm.wait(%f!)
  %g = comm.wait(%g!)
  %h, %i = comm.wait(%hi!)
}
)";

std::vector<run::Tensors> RandomInputs(const Module& module, int64_t step) {
  std::vector<run::Tensors> inputs;
  at::Generator generator = at::detail::createCPUGenerator(static_cast<uint64_t>(step));
  for (int64_t rank = 0; rank < module.mesh.ranks(); ++rank) {
    inputs.push_back({at::randn({6, 5}, generator), at::randn({4}, generator).to(at::kBFloat16),
                      at::randn({3}, generator)});
  }
  return inputs;
}

// The fault of one rank before its third step.
void Suffer(const std::string& fate) {
  if (fate == "killed") ::raise(SIGKILL);
  if (fate == "stopped") ::raise(SIGSTOP);
  if (fate == "ends") std::_Exit(0);
}

int Complain(const Diagnostics& diagnostics, run::Peers* peers = nullptr) {
  std::cerr << Format(diagnostics);
  if (peers != nullptr) peers->watch().Fail(diagnostics[0].message);
  return kFault;
}

int RunWorker(const std::string& fate) {
  at::set_num_threads(1);
  Module module = *ParseModule(kCollectives, "test", Ops());
  const Graph& graph = module.graphs[0];
  run::PeerAddress address = **run::PeerAddress::FromEnvironment();
  if (fate == "missing" && address.rank == 1) return 0;
  // Only ranks that wait for a lost one need a short timeout.
  bool waits = fate != "well" && fate != "other" && fate != "interface";
  if (fate == "interface" && address.rank == 1) ::setenv("GLOO_SOCKET_IFNAME", "lo,none7", 1);
  Result<std::unique_ptr<run::Peers>> met =
      run::Peers::Meet(address, waits ? milliseconds(5000) : std::chrono::minutes(5));
  if (!met.ok()) return Complain(met.diagnostics());
  run::Peers& peers = **met;
  Status agreed =
      peers.Agree("settings", fate == "other" && address.rank == 1 ? "graph 17\nbatch 4 x 64"
                                                                   : "graph 17\nbatch 8 x 64");
  if (!agreed.ok()) return Complain(agreed.diagnostics(), &peers);
  Result<std::shared_ptr<run::ProcessTransport>> transport =
      run::ProcessTransport::Connect(peers, module, c10::kCPU);
  if (!transport.ok()) return Complain(transport.diagnostics(), &peers);
  run::RankProgram own =
      *run::RankProgram::Compile(module, graph, {.ranks = {address.rank}, .transport = *transport});
  run::RankProgram all = *run::RankProgram::Compile(
      module, graph, {.reducer = run::Reducer(run::Reducer::Order::kGloo)});
  for (int64_t step = 0; step < 5; ++step) {
    if (step == 2 && address.rank == 1) Suffer(fate);
    std::vector<run::Tensors> inputs = RandomInputs(module, step);
    auto r = static_cast<size_t>(address.rank);
    Result<std::vector<run::Tensors>> here = own.Run({&inputs[r], 1});
    if (!here.ok()) return Complain(here.diagnostics(), &peers);
    std::vector<run::Tensors> expected = *all.Run(inputs);
    for (size_t i = 0; i < expected[r].size(); ++i) {
      if (run::SameBits((*here)[0][i], expected[r][i])) continue;
      std::cerr << "step " << step << " output " << i << " differs\n";
      return kWrongBits;
    }
  }
  if (address.rank == 0) std::cout << "all equal\n";
  std::cout.flush();
  return 0;
}

struct Ran {
  run::JobEnd end;
  std::string out;
  std::string err;
};

Ran RunJobOfFour(const std::string& fate) {
  Ran ran;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    run::SignalGate gate;
    run::OwnStore store = *run::OpenStore(milliseconds(5000));
    run::Job job{.program = run::ThisProgram(),
                 .args = {"worker", fate},
                 .processes = 4,
                 .environment = {{"MASTER_ADDR", "127.0.0.1"},
                                 {"MASTER_PORT", std::to_string(store.port)},
                                 {"TORCHELASTIC_USE_AGENT_STORE", "True"}}};
    ran.end = *run::RunJob(job, gate);
  }
  ran.out = testing::internal::GetCapturedStdout();
  ran.err = testing::internal::GetCapturedStderr();
  return ran;
}

TEST(Processes, HaveTheBitsOfLockstep) {
  Ran ran = RunJobOfFour("well");
  EXPECT_TRUE(ran.end.ok()) << ran.err;
  EXPECT_EQ(ran.out, "all equal\n") << ran.err;
}

TEST(Processes, SayWhoWasKilled) {
  Ran ran = RunJobOfFour("killed");
  EXPECT_EQ(ran.end.rank, 1);
  EXPECT_EQ(ran.end.signal, SIGKILL);
  EXPECT_NE(ran.err.find("[rank 0] "), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("rank 1 does not answer"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("comm."), std::string::npos) << ran.err;
}

TEST(Processes, SayWhoWasStopped) {
  Ran ran = RunJobOfFour("stopped");
  EXPECT_EQ(ran.end.code, kFault) << "signal " << ran.end.signal << "\n" << ran.err;
  EXPECT_NE(ran.err.find("rank 1 does not answer"), std::string::npos) << ran.err;
}

TEST(Processes, SayWhoEnded) {
  Ran ran = RunJobOfFour("ends");
  EXPECT_EQ(ran.end.code, kFault) << "signal " << ran.end.signal << "\n" << ran.err;
  EXPECT_NE(ran.err.find("rank 1 "), std::string::npos) << ran.err;
}

TEST(Processes, SayWhoDidNotCome) {
  Ran ran = RunJobOfFour("missing");
  EXPECT_EQ(ran.end.code, kFault) << "signal " << ran.end.signal << "\n" << ran.err;
  EXPECT_NE(ran.err.find("0, 2, 3 connected, 1 did not [peers]"), std::string::npos) << ran.err;
}

TEST(Processes, SayWhoDiffers) {
  Ran ran = RunJobOfFour("other");
  EXPECT_EQ(ran.end.code, kFault) << "signal " << ran.end.signal << "\n" << ran.err;
  for (int rank : {0, 1, 2, 3}) {
    std::string line = fmt::format("[rank {}] ", rank);
    EXPECT_NE(ran.err.find(line), std::string::npos) << ran.err;
  }
  EXPECT_NE(ran.err.find("rank 1 differs from rank 0 in its settings"), std::string::npos)
      << ran.err;
  EXPECT_NE(ran.err.find("`batch 4 x 64`, rank 0 has `batch 8 x 64`"), std::string::npos)
      << ran.err;
}

TEST(Processes, SayWhoHasNoInterface) {
  Ran ran = RunJobOfFour("interface");
  EXPECT_EQ(ran.end.code, kFault) << "signal " << ran.end.signal << "\n" << ran.err;
  for (int rank : {0, 1, 2, 3}) {
    std::string line = fmt::format("[rank {}] ", rank);
    EXPECT_NE(ran.err.find(line), std::string::npos) << ran.err;
  }
  EXPECT_NE(
      ran.err.find("rank 1: GLOO_SOCKET_IFNAME is `lo,none7`, but no interface `none7` is up"),
      std::string::npos)
      << ran.err;
}

TEST(PeerAddress, SaysWhatIsWrongWithTheEnvironment) {
  auto said = [](const std::map<std::string, std::string>& set) {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_PORT"}) ::unsetenv(name);
    for (const auto& [name, value] : set) ::setenv(name.c_str(), value.c_str(), 1);
    Result<std::optional<run::PeerAddress>> address = run::PeerAddress::FromEnvironment();
    for (const auto& [name, value] : set) ::unsetenv(name.c_str());
    if (!address.ok()) {
      EXPECT_EQ(address.diagnostics()[0].kind, Diag::kEnvironment);
      return address.diagnostics()[0].message;
    }
    return std::string(*address ? "a rank" : "alone");
  };
  EXPECT_EQ(said({}), "alone");
  EXPECT_EQ(said({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), "a rank");
  EXPECT_EQ(said({{"RANK", "1"}}), "RANK is 1, but WORLD_SIZE is not set");
  EXPECT_EQ(said({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "RANK is 2, but WORLD_SIZE is 2");
  EXPECT_EQ(said({{"RANK", "x"}, {"WORLD_SIZE", "2"}}),
            "RANK is `x`, expected a number from 0 to 1048575");
  EXPECT_EQ(said({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "70000"}}),
            "MASTER_PORT is `70000`, expected a number from 1 to 65535");
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "worker") {
    int code = heddle::RunWorker(argv[2]);
    std::cout.flush();
    std::_Exit(code);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
