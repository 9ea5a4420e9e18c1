#include "heddle/budget/exact.h"

#include <algorithm>

#include "heddle/analysis/liveness.h"
#include "heddle/ir/storage.h"
#include "heddle/passes/memory/recompute.h"

namespace heddle {

namespace {

// Whether collectives and compute take turns: each wait stands right behind its launch, and stays there.
bool TakeTurns(const Trials& trials) {
  const Graph& graph = trials.graph();
  return trials.only_cleans() && std::ranges::all_of(graph.nodes(), [&](NodeId node) {
           NodeId launch = LaunchOf(graph, node);
           return !launch || launch.index() + 1 == node.index();
         });
}

}  // namespace

bool ExactSearch::IsFew(size_t decisions, const Trials& trials) {
  constexpr size_t kMost = 25;
  constexpr size_t kMostBesideCollectives = 14;
  constexpr size_t kMostBesideWeights = 10;
  constexpr size_t kMostNodes = 2000;
  const Graph& graph = trials.graph();
  if (decisions > kMost || graph.node_count() > kMostNodes) return false;
  if (TakeTurns(trials)) return true;
  size_t most = kMost;
  for (NodeId node : graph.nodes()) {
    if (graph.op(node).effect() != Effect::kComm) continue;
    bool weight = IsUnshard(graph, node) || IsGradReduction(graph, node);
    most = std::min(most, weight ? kMostBesideWeights : kMostBesideCollectives);
  }
  return decisions <= most;
}

ExactSearch::ExactSearch(Trials& trials, const Weights& weights, const RunTimes& times,
                         Bytes budget)
    : trials_(trials),
      graph_(trials.graph()),
      times_again_(TakeTurns(trials) ? times.all : times.compute),
      path_(graph_, weights, times),
      budget_(budget),
      needed_(graph_.value_count()),
      runs_again_(graph_.node_count()),
      marks_(graph_.value_count(), heddle::Keep::kDefault),
      time_(TakeTurns(trials) ? trials.step() : trials.compute()),
      first_read_(graph_.value_count()) {
  FindSteps(weights);
  FindMemory();
}

void ExactSearch::FindSteps(const Weights& weights) {
  for (NodeId node : graph_.nodes()) {
    for (ValueId v : graph_.operands(node)) {
      if (Crosses(graph_, node, v)) ++needed_[v.index()];
    }
  }
  for (size_t i = graph_.value_count(); i-- > 0;) {
    ValueId v{i};
    NodeId node = graph_[v].producer;
    bool made = node && graph_[node].phase == Phase::kForward && !weights.is_weight(v) &&
                !graph_.types()[graph_.type(v)].async && graph_[v].keep == heddle::Keep::kDefault;
    if (!made || !CanRecompute(graph_, node)) continue;
    // A view takes no memory, and is made again.
    steps_.push_back({v, graph_.op(node).effect() != Effect::kView});
  }
}

// What is read behind forward is there while it is read, kept or not.
void ExactSearch::FindMemory() {
  for (NodeId node : graph_.nodes()) {
    if (graph_[node].phase != Phase::kForward) {
      first_behind_ = node;
      break;
    }
  }
  if (!first_behind_) return;
  Liveness liveness(graph_);
  size_t behind = graph_.node_count() - first_behind_.index();
  live_.assign(behind, trials_.inputs());
  std::vector<NodeId> first(liveness.storages().size());
  std::vector<NodeId> last(liveness.storages().size());
  for (size_t n = first_behind_.index(); n < graph_.node_count(); ++n) {
    ForEachRead(graph_, NodeId(n), [&](ValueId v) {
      size_t storage = liveness.of(v).index();
      if (!first[storage]) first[storage] = NodeId(n);
      last[storage] = NodeId(n);
    });
  }
  for (StorageId id : liveness.storages().ids()) {
    const Storage& storage = liveness.storages()[id];
    if (!storage.birth || storage.space != Space::kDevice) continue;
    bool by_forward = storage.birth < first_behind_;
    NodeId from = by_forward ? first[id.index()] : storage.birth;
    NodeId to = by_forward ? last[id.index()] : storage.death;
    if (!from) continue;
    if (!to) to = NodeId(graph_.node_count() - 1);
    for (size_t n = from.index(); n <= to.index(); ++n)
      live_[n - first_behind_.index()] += storage.bytes;
    if (by_forward) first_read_[storage.value.index()] = from;
  }
}

void ExactSearch::AddKept(ValueId v, int64_t sign) {
  Bytes bytes = graph_.types().bytes(graph_.type(v)) * sign;
  // What only recomputation reads is there when forward ends.
  NodeId until =
      first_read_[v.index()] ? first_read_[v.index()] : NodeId(first_behind_.index() + 1);
  for (size_t n = first_behind_.index(); n < until.index() && n < graph_.node_count(); ++n)
    live_[n - first_behind_.index()] += bytes;
}

Result<const MemoryChoice*> ExactSearch::Run(const MemoryChoice* best) {
  best_ = best;
  if (!first_behind_) return best_;
  HEDDLE_RETURN_IF_ERROR(Branch(0));
  return best_;
}

Status ExactSearch::Branch(size_t at) {
  if (++work_ >= kMostWork) return Done{};
  while (at < steps_.size() && needed_[steps_[at].value.index()] == 0) ++at;
  if (best_ != nullptr && time_ >= best_->step) return Done{};
  if (std::ranges::any_of(live_, [&](Bytes live) { return live > budget_; })) return Done{};
  if (best_ != nullptr && path_.Of(marks_) >= best_->step) return Done{};
  if (at == steps_.size()) return Leaf();
  if (steps_[at].decides) HEDDLE_RETURN_IF_ERROR(Keep(at));
  return Recompute(at);
}

Status ExactSearch::Keep(size_t at) {
  ValueId v = steps_[at].value;
  marks_[v.index()] = heddle::Keep::kMustSave;
  AddKept(v, 1);
  Status status = Branch(at + 1);
  AddKept(v, -1);
  marks_[v.index()] = heddle::Keep::kDefault;
  return status;
}

Status ExactSearch::Recompute(size_t at) {
  ValueId v = steps_[at].value;
  NodeId node = graph_[v].producer;
  bool is_first = runs_again_[node.index()]++ == 0;
  auto need = [&](int64_t sign) {
    if (!is_first) return;
    time_ += times_again_[node.index()] * sign;
    for (ValueId needed : NeededAgain(graph_, node)) {
      if (needed) needed_[needed.index()] += sign;
    }
  };
  marks_[v.index()] = heddle::Keep::kPreferRecompute;
  need(1);
  Status status = Branch(at + 1);
  need(-1);
  marks_[v.index()] = heddle::Keep::kDefault;
  --runs_again_[node.index()];
  return status;
}

Status ExactSearch::Leaf() {
  work_ += kTrialWork;
  HEDDLE_TRY(const MemoryChoice* choice, trials_.Try("searched", marks_));
  bool is_better = best_ == nullptr || choice->step < best_->step;
  if (choice->peak <= budget_ && is_better) best_ = choice;
  return Done{};
}

}  // namespace heddle
