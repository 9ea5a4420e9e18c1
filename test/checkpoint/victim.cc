// A run for tests that kill it: every step changes numbers and is saved, and a new start resumes
// from the newest checkpoint.
//
//   checkpoint_victim FOLDER MESH STEPS [processes]
//
// The final state depends on all steps, and not on the mesh. Prints `resumed STEP`, `saved STEP`
// when a save is complete, and `end HASH`.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include "heddle/core/base/hash.h"
#include "test/checkpoint/state.h"

namespace heddle {
namespace {

constexpr const char* kMeshes[] = {"dp4", "dp2tp2", "tp4", "hsdp2x2"};

State MakeState(const std::string& name) {
  std::vector<std::string> matrix, vector;
  State state;
  if (name == kMeshes[0]) {
    state.mesh = Mesh({{"dp", 4}});
    matrix = {"dp", ""}, vector = {"dp"};
  } else if (name == kMeshes[1]) {
    state.mesh = Mesh({{"dp", 2}, {"tp", 2}});
    matrix = {"dp", "tp"}, vector = {"dp"};
  } else if (name == kMeshes[2]) {
    state.mesh = Mesh({{"tp", 4}});
    matrix = {"", "tp"}, vector = {""};
  } else {
    state.mesh = Mesh({{"replicate", 2}, {"shard", 2}});
    matrix = {"shard", ""}, vector = {"shard"};
  }
  state.tensors = {MakeTensor(state.mesh, "w", {301, 103}, matrix),
                   MakeTensor(state.mesh, "exp_avg.w", {301, 103}, matrix),
                   MakeTensor(state.mesh, "b", {7}, vector, DType::kBF16)};
  Fill(state, 1);
  return state;
}

// Every byte depends on its old value and on the step.
void Step(State& state, int64_t step) {
  for (StateTensor& tensor : state.tensors) {
    uint64_t word = Hash64(tensor.bytes);
    for (size_t i = 0; i < tensor.bytes.size(); ++i) {
      if (i % 8 == 0) word = MixHash(word, static_cast<uint64_t>(step));
      tensor.bytes[i] = static_cast<char>(tensor.bytes[i] ^ (word >> (8 * (i % 8))));
    }
  }
}

[[noreturn]] void Fail(const Diagnostics& diagnostics) {
  std::fputs(Format(diagnostics).c_str(), stderr);
  std::_Exit(1);
}

void Say(const std::string& text) {
  // Writes without a buffer: the test relies on every printed line.
  (void)!::write(STDOUT_FILENO, text.data(), text.size());
}

// Returns the step to resume after; 0 at the beginning.
int64_t Resume(State& state, const std::string& folder) {
  auto found = run::OpenCheckpoint(folder);
  if (!found.ok()) Fail(found.diagnostics());
  if (!*found) return 0;
  const run::Checkpoint& checkpoint = **found;
  for (const std::string& note : checkpoint.notes()) Say(note + "\n");
  for (StateTensor& tensor : state.tensors) {
    // Reads slice by slice, as ranks do.
    for (int64_t rank : AllRanks(state.mesh)) {
      run::Slice slice = run::SliceOf(tensor.info.shape, tensor.placement, state.mesh, rank);
      std::string part(static_cast<size_t>(run::BytesOf(tensor.info.dtype, slice.shape)), '\0');
      Status read = checkpoint.Read(tensor.info.name, slice, part.data());
      if (!read.ok()) Fail(read.diagnostics());
    }
    Status read =
        checkpoint.Read(tensor.info.name, run::WholeSlice(tensor.info.shape), tensor.bytes.data());
    if (!read.ok()) Fail(read.diagnostics());
  }
  return checkpoint.step();
}

void Run(State& state, run::CheckpointWriter& writer, const std::vector<int64_t>& ranks,
         int64_t step, int64_t steps) {
  bool tells = ranks[0] == 0;
  int64_t told = step;
  while (step < steps) {
    Step(state, ++step);
    Status saved = writer.Save(SnapshotOf(state, step, ranks));
    if (!saved.ok()) Fail(saved.diagnostics());
    if (tells && writer.last() && writer.last()->step > told) {
      told = writer.last()->step;
      Say(fmt::format("saved {}\n", told));
    }
  }
  Status saved = writer.Finish();
  if (!saved.ok()) Fail(saved.diagnostics());
  if (!tells) return;
  uint64_t hash = 0;
  for (const StateTensor& tensor : state.tensors) hash = MixHash(hash, Hash64(tensor.bytes));
  Say(fmt::format("end {:016x}\n", hash));
}

run::CheckpointWriterOptions OptionsFor(const std::string& folder, const State& state,
                                        int64_t begin) {
  run::CheckpointWriterOptions options;
  options.folder = folder;
  options.world = state.mesh.ranks();
  options.ranks = AllRanks(state.mesh);
  options.begin_step = begin;
  options.timeout = std::chrono::seconds(20);
  return options;
}

std::unique_ptr<run::CheckpointWriter> Open(run::CheckpointWriterOptions options) {
  auto writer = run::CheckpointWriter::Open(std::move(options));
  if (!writer.ok()) Fail(writer.diagnostics());
  return *std::move(writer);
}

// Runs one process per rank. They synchronize once, when rank 0 has opened the folder.
int RunProcesses(State& state, const std::string& folder, int64_t begin, int64_t steps) {
  void* shared = ::mmap(nullptr, sizeof(pthread_barrier_t), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* barrier = static_cast<pthread_barrier_t*>(shared);
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(barrier, &attributes, static_cast<unsigned>(state.mesh.ranks()));
  std::vector<pid_t> children;
  std::string run = fmt::format("{}", ::getpid());
  for (int64_t rank : AllRanks(state.mesh)) {
    pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      run::CheckpointWriterOptions options = OptionsFor(folder, state, begin);
      options.ranks = {rank};
      options.run = run;
      auto writer = Open(std::move(options));
      pthread_barrier_wait(barrier);
      Run(state, *writer, {rank}, begin, steps);
      writer.reset();
      std::_Exit(0);
    }
    children.push_back(child);
    Say(fmt::format("process {}\n", child));
  }
  int worst = 0;
  for (pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    worst = std::max(worst, status);
  }
  return worst == 0 ? 0 : 1;
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  using namespace heddle;
  if (argc < 4) return 1;
  std::string folder = argv[1];
  int64_t steps = std::atoll(argv[3]);
  State state = MakeState(argv[2]);
  int64_t begin = Resume(state, folder);
  Say(fmt::format("resumed {}\n", begin));
  if (argc > 4) return RunProcesses(state, folder, begin, steps);
  auto writer = Open(OptionsFor(folder, state, begin));
  Run(state, *writer, AllRanks(state.mesh), begin, steps);
}
