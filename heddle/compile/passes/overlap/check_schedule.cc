#include "heddle/compile/passes/overlap/check_schedule.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "heddle/core/analysis/liveness.h"
#include "heddle/core/ops/ops.h"
#include "heddle/price/cost/kernel_time.h"

namespace heddle::compile {
namespace {

bool IsStart(const Graph& graph, NodeId id) {
  return graph.op(id).effect() == Effect::kComm && graph[id].op != op::comm_wait;
}

class ScheduleChecker {
 public:
  ScheduleChecker(const Graph& before, const Graph& after) : before_(before), after_(after) {}

  Status Run(Bytes cap, const price::MemoryRules& rules, Freedom freedom) {
    HEDDLE_RETURN_IF_ERROR(CheckNodes());
    HEDDLE_RETURN_IF_ERROR(CheckTransfers());
    HEDDLE_RETURN_IF_ERROR(CheckOrder());
    if (freedom != Freedom::kAll) HEDDLE_RETURN_IF_ERROR(CheckMatrixWork());
    HEDDLE_RETURN_IF_ERROR(CheckOutputs());
    return CheckMemory(cap, rules);
  }

 private:
  static std::string_view NameOf(const Graph& graph, ValueId v) {
    return v ? graph.name(v) : "none";
  }
  // A node without its position: `aten.mm(a, b) -> c`.
  static std::string Text(const Graph& graph, NodeId id) {
    std::string text(graph.op(id).name());
    text += '(';
    for (ValueId v : graph.operands(id)) text.append(NameOf(graph, v)) += ' ';
    text += ") ->";
    for (ValueId v : graph.results(id)) text.append(" ").append(NameOf(graph, v));
    return text;
  }
  static bool IsTransfer(const Graph& graph, NodeId id) {
    if (IsStart(graph, id)) return true;
    return graph[id].op == op::comm_wait && graph[graph.operands(id)[0]].producer;
  }

  static std::string_view FirstName(const Graph& graph, NodeId id) {
    return NameOf(graph, graph[id].first_result);
  }
  // Whether a node of the graph and one of the schedule are equal, by names of values.
  bool IsSame(NodeId was, NodeId is) const {
    auto same = [&](ValueId a, ValueId b) { return NameOf(before_, a) == NameOf(after_, b); };
    return before_[was].op == after_[is].op &&
           std::ranges::equal(before_.operands(was), after_.operands(is), same) &&
           std::ranges::equal(before_.results(was), after_.results(is), same);
  }

  // CheckTransfers handles starts and waits; CheckOrder handles nodes without results, which are
  // opaque.
  static bool IsPlain(const Graph& graph, NodeId id) {
    return graph[id].result_count > 0 && !IsTransfer(graph, id);
  }
  // Both graphs have the same plain nodes, each once.
  Status CheckNodes() const {
    // Keyed by the name of the first result, which is unique.
    std::unordered_map<std::string_view, NodeId> wanted;
    for (NodeId id : before_.nodes()) {
      if (IsPlain(before_, id)) wanted.emplace(FirstName(before_, id), id);
    }
    std::vector<bool> found(before_.node_count());
    for (NodeId id : after_.nodes()) {
      if (!IsPlain(after_, id)) continue;
      auto at = wanted.find(FirstName(after_, id));
      if (at == wanted.end() || found[at->second.index()] || !IsSame(at->second, id))
        return Error(Diag::kPassClaim, "`{}` is in the schedule, but not in the graph in this form",
                     Text(after_, id));
      found[at->second.index()] = true;
    }
    for (NodeId id : before_.nodes()) {
      if (!found[id.index()] && IsPlain(before_, id))
        return Error(Diag::kPassClaim, "`{}` is lost", Text(before_, id));
    }
    return Done{};
  }

  // The source and kind of each waited tensor: `comm.all_gather over dp of x`.
  static std::map<std::string, std::string> Transfers(const Graph& graph) {
    std::map<std::string, std::string> made;
    for (NodeId id : graph.nodes()) {
      if (graph[id].op != op::comm_wait) continue;
      NodeId start = graph[graph.operands(id)[0]].producer;
      if (!start) continue;
      for (size_t i = 0; i < graph[id].result_count; ++i) {
        const Attrs& attrs = graph.attrs(start);
        std::string how(graph.op(start).name());
        if (const AttrValue* over = attrs.Find("over"))
          how += fmt::format(" {}", std::get<Axes>(*over).bits());
        if (i < graph.operands(start).size())
          how += fmt::format(" :{} of {}", graph[start].stream,
                             NameOf(graph, graph.operands(start)[i]));
        made[std::string(NameOf(graph, graph.results(id)[i]))] = how;
      }
    }
    return made;
  }
  Status CheckTransfers() const {
    std::map<std::string, std::string> wanted = Transfers(before_);
    std::map<std::string, std::string> got = Transfers(after_);
    for (const auto& [name, how] : wanted) {
      auto at = got.find(name);
      if (at == got.end()) return Error(Diag::kPassClaim, "%{} is never waited for", name);
      if (at->second != how)
        return Error(Diag::kPassClaim, "%{} is `{}`, expected `{}`", name, at->second, how);
    }
    if (got.size() == wanted.size()) return Done{};
    return Error(Diag::kPassClaim, "{} tensors are waited for, expected {}", got.size(),
                 wanted.size());
  }

  // Operands come first; a start has one wait; overwritten storages are not read again; random ops
  // keep their order.
  Status CheckOrder() const {
    std::vector<bool> made(after_.value_count());
    std::vector<bool> waited(after_.node_count());
    for (const Input& input : after_.inputs()) made[input.value.index()] = true;
    std::vector<std::string> draws[2];
    for (NodeId id : after_.nodes()) {
      for (ValueId v : after_.operands(id)) {
        if (v && !made[v.index()])
          return Error(Diag::kPassClaim, "`{}` reads %{} before it is computed", Text(after_, id),
                       after_.name(v));
      }
      for (ValueId v : after_.results(id)) made[v.index()] = true;
      if (after_[id].op != op::comm_wait) continue;
      NodeId start = after_[after_.operands(id)[0]].producer;
      if (!start) continue;
      if (waited[start.index()])
        return Error(Diag::kPassClaim, "`{}` is waited for twice", Text(after_, start));
      waited[start.index()] = true;
    }
    for (int i = 0; i < 2; ++i) {
      const Graph& graph = i == 0 ? before_ : after_;
      for (NodeId id : graph.nodes()) {
        Effect effect = graph.op(id).effect();
        if (effect == Effect::kRandom || effect == Effect::kOpaque)
          draws[i].push_back(Text(graph, id));
      }
    }
    if (draws[0] == draws[1]) return Done{};
    return Error(Diag::kPassClaim, "random numbers are drawn in another order");
  }

  // Matrix products and attention keep the order of the graph.
  Status CheckMatrixWork() const {
    std::vector<std::string_view> names[2];
    for (int i = 0; i < 2; ++i) {
      const Graph& graph = i == 0 ? before_ : after_;
      for (NodeId id : graph.nodes()) {
        if (IsMatrixWork(graph.op(id))) names[i].push_back(FirstName(graph, id));
      }
    }
    auto [was, is] = std::ranges::mismatch(names[0], names[1]);
    if (was == names[0].end() || is == names[1].end()) return Done{};
    return Error(Diag::kPassClaim, "%{} runs before %{}, which is first in the graph", *is, *was);
  }

  Status CheckOutputs() const {
    if (before_.outputs().size() != after_.outputs().size())
      return Error(Diag::kPassClaim, "{} outputs, expected {}", after_.outputs().size(),
                   before_.outputs().size());
    for (size_t i = 0; i < before_.outputs().size(); ++i) {
      std::string_view was = NameOf(before_, before_.outputs()[i].value);
      std::string_view is = NameOf(after_, after_.outputs()[i].value);
      if (was != is) return Error(Diag::kPassClaim, "output {} is %{}, expected %{}", i, is, was);
    }
    return Done{};
  }

  // Storages end after their last reader or producer.
  std::vector<size_t> LastReaders(const Liveness& liveness, const price::MemoryRules& rules) const {
    std::vector<size_t> last(liveness.storages().size());
    for (NodeId id : after_.nodes()) {
      auto needs = [&](ValueId v) {
        if (v) last[liveness.of(v).index()] = id.index() + 1;
      };
      for (ValueId v : after_.operands(id)) needs(v);
      for (ValueId v : after_.results(id)) needs(v);
      if (rules.packed_copies || after_[id].op != op::comm_wait) continue;
      NodeId start = after_[after_.operands(id)[0]].producer;
      if (!start) continue;
      for (ValueId v : after_.operands(start)) needs(v);
    }
    return last;
  }

  // The packed inputs of a bucket at its start, or the buffer of gathered tensors at its wait.
  Bytes Passing(NodeId id) const {
    auto bytes = [&](auto values) {
      Bytes sum;
      for (ValueId v : values) sum += after_.types().bytes(after_.type(v));
      return sum;
    };
    const bool waits = after_[id].op == op::comm_wait;
    const NodeId start = waits ? after_[after_.operands(id)[0]].producer : id;
    if (!start || !IsStart(after_, start) || after_.operands(start).size() == 1) return {};
    if (!waits) return bytes(after_.operands(id));
    return after_[start].op == op::comm_all_gather ? bytes(after_.results(id)) : Bytes{};
  }

  Status CheckMemory(Bytes cap, const price::MemoryRules& rules) const {
    Liveness liveness(after_);
    std::vector<size_t> last = LastReaders(liveness, rules);
    std::vector<Bytes> born(after_.node_count() + 1);
    std::vector<Bytes> gone(after_.node_count() + 1);
    std::set<StorageId> returned;
    for (const Output& output : after_.outputs()) returned.insert(liveness.of(output.value));
    for (StorageId id : liveness.storages().ids()) {
      const Storage& storage = liveness.storages()[id];
      if (storage.space != Space::kDevice) continue;
      born[storage.birth ? storage.birth.index() + 1 : 0] += storage.bytes;
      bool freed = storage.birth ? bool(storage.death) : rules.inputs == price::InputMemory::kFreed;
      if (freed && !returned.contains(id) && (storage.birth || last[id.index()] > 0))
        gone[last[id.index()]] += storage.bytes;
    }
    Bytes live = born[0];
    for (NodeId id : after_.nodes()) {
      live += born[id.index() + 1];
      Bytes now = live + (rules.packed_copies ? Passing(id) : Bytes{});
      if (now > cap)
        return Error(Diag::kPassClaim, "{} are alive at `{}`, which exceeds the limit of {}",
                     Format(now), Text(after_, id), Format(cap));
      live -= gone[id.index() + 1];
    }
    return Done{};
  }

  const Graph& before_;
  const Graph& after_;
};

}  // namespace

Status CheckSchedule(const Graph& before, const Graph& after, Bytes cap,
                     const price::MemoryRules& rules, Freedom freedom) {
  return ScheduleChecker(before, after).Run(cap, rules, freedom);
}

}  // namespace heddle::compile
