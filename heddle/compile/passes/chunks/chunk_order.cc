#include "heddle/compile/passes/chunks/chunk_order.h"

#include <algorithm>
#include <tuple>

#include "heddle/compile/passes/fsdp/scheduler.h"

namespace heddle::compile {
namespace {

class TurnTaker {
 public:
  TurnTaker(const Graph& graph, const price::SimGraph& sim, const ChunkThreads& threads);
  std::vector<NodeId> Run();

 private:
  // Priority among threads that need not wait: a chunk; other nodes; a chunk far ahead of others,
  // which keeps weights alive.
  enum class Turn : uint8_t { kNow, kRest, kLeads, kStalls };
  static constexpr int64_t kMostLead = 2;

  struct Thread {
    std::vector<uint32_t> nodes;
    // Indexed by position: time until the thread starts its next collective.
    std::vector<Nanos> until_start;
    size_t next = 0;
    // The number of collectives that it has started.
    int64_t starts = 0;
    bool done() const { return next == nodes.size(); }
  };

  Nanos StallOf(uint32_t node) const;
  void Emit(uint32_t node);
  void EmitWith(uint32_t node);
  // Collects unlisted nodes that must come first. Returns false if one of them belongs to a thread.
  bool FindMissing(uint32_t node);
  bool FillGap(Nanos until);
  Thread* Choose();

  const price::SimGraph& sim_;
  const ChunkThreads& threads_;
  std::vector<std::vector<uint32_t>> before_;
  std::vector<Thread> all_;
  std::vector<uint32_t> fillers_;
  size_t first_filler_ = 0;
  std::vector<bool> listed_;
  std::vector<uint32_t> missing_;
  std::vector<uint32_t> seen_;
  uint32_t walk_ = 0;
  std::vector<Nanos> stream_free_;
  std::vector<Nanos> end_;
  Nanos now_;
  std::vector<NodeId> order_;
};

TurnTaker::TurnTaker(const Graph& graph, const price::SimGraph& sim, const ChunkThreads& threads)
    : sim_(sim),
      threads_(threads),
      before_(graph.node_count()),
      all_(threads.chunks + 1),
      listed_(graph.node_count()),
      seen_(graph.node_count()),
      stream_free_(sim.streams().size()),
      end_(graph.node_count()) {
  for (const OrderEdge& edge : OrderEdges(graph)) before_[edge.to].push_back(edge.from);
  for (uint32_t node = 0; node < graph.node_count(); ++node) {
    if (threads.floats[node]) {
      if (threads.fills[node]) fillers_.push_back(node);
      continue;
    }
    uint32_t chunk = threads.chunk_of[node];
    all_[chunk == kNoChunk ? threads.chunks : chunk].nodes.push_back(node);
  }
  for (Thread& thread : all_) {
    thread.until_start.resize(thread.nodes.size());
    Nanos until;
    for (size_t i = thread.nodes.size(); i-- > 0;) {
      const price::Task& task = sim.tasks()[thread.nodes[i]];
      until = task.kind == price::Task::Kind::kStart ? Nanos{} : until + task.compute;
      thread.until_start[i] = until;
    }
  }
}

bool TurnTaker::FindMissing(uint32_t node) {
  missing_.assign(1, node);
  seen_[node] = ++walk_;
  for (size_t i = 0; i < missing_.size(); ++i) {
    for (uint32_t earlier : before_[missing_[i]]) {
      if (listed_[earlier] || seen_[earlier] == walk_) continue;
      if (!threads_.floats[earlier]) return false;
      seen_[earlier] = walk_;
      missing_.push_back(earlier);
    }
  }
  return true;
}

Nanos TurnTaker::StallOf(uint32_t node) const {
  const price::Task& task = sim_.tasks()[node];
  if (task.kind != price::Task::Kind::kWait || task.start == price::Task::kNone) return {};
  return std::max(Nanos{}, end_[task.start] - now_);
}

void TurnTaker::Emit(uint32_t node) {
  const price::Task& task = sim_.tasks()[node];
  listed_[node] = true;
  order_.push_back(NodeId(node));
  // Nodes that depend only on parameters are assumed to be available in time.
  bool timed = !threads_.floats[node];
  if (task.kind == price::Task::Kind::kStart && timed) {
    Nanos& free = stream_free_[task.stream];
    free = end_[node] = std::max(free, now_) + task.alone();
  }
  if (timed) now_ += StallOf(node);
  now_ += task.compute;
}

void TurnTaker::EmitWith(uint32_t node) {
  FindMissing(node);
  std::vector<uint32_t> missing = missing_;
  std::ranges::sort(missing);
  for (uint32_t one : missing) Emit(one);
}

// Runs ready copies while no thread can run.
bool TurnTaker::FillGap(Nanos until) {
  while (first_filler_ < fillers_.size() && listed_[fillers_[first_filler_]]) ++first_filler_;
  constexpr size_t kLookAt = 8;
  for (size_t i = first_filler_; i < std::min(fillers_.size(), first_filler_ + kLookAt); ++i) {
    if (listed_[fillers_[i]] || !FindMissing(fillers_[i])) continue;
    if (now_ + sim_.tasks()[fillers_[i]].compute > until) continue;
    EmitWith(fillers_[i]);
    return true;
  }
  return false;
}

TurnTaker::Thread* TurnTaker::Choose() {
  int64_t fewest = INT64_MAX;
  for (size_t i = 0; i + 1 < all_.size(); ++i) {
    if (!all_[i].done()) fewest = std::min(fewest, all_[i].starts);
  }
  Thread* best = nullptr;
  std::tuple<Turn, Nanos> best_turn;
  for (Thread& thread : all_) {
    if (thread.done() || !FindMissing(thread.nodes[thread.next])) continue;
    Nanos stall = StallOf(thread.nodes[thread.next]);
    Turn turn = Turn::kNow;
    if (stall.value > 0) {
      turn = Turn::kStalls;
    } else if (&thread == &all_.back()) {
      turn = Turn::kRest;
    } else if (thread.starts - fewest > kMostLead) {
      turn = Turn::kLeads;
    }
    std::tuple<Turn, Nanos> mine{turn, stall.value > 0 ? stall : thread.until_start[thread.next]};
    if (best != nullptr && best_turn <= mine) continue;
    best = &thread;
    best_turn = mine;
  }
  return best;
}

std::vector<NodeId> TurnTaker::Run() {
  while (Thread* thread = Choose()) {
    uint32_t node = thread->nodes[thread->next];
    Nanos stall = StallOf(node);
    if (stall.value > 0 && FillGap(now_ + stall)) continue;
    EmitWith(node);
    ++thread->next;
    if (sim_.tasks()[node].kind == price::Task::Kind::kStart) ++thread->starts;
  }
  for (uint32_t node = 0; node < listed_.size(); ++node) {
    if (!listed_[node]) EmitWith(node);
  }
  return std::move(order_);
}

}  // namespace

std::vector<NodeId> OrderOfChunks(const Graph& graph, const price::SimGraph& sim,
                                  const ChunkThreads& threads) {
  return TurnTaker(graph, sim, threads).Run();
}

}  // namespace heddle::compile
