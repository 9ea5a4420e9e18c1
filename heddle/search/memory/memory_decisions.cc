#include "heddle/search/memory/memory_decisions.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "heddle/compile/passes/memory/recompute.h"
#include "heddle/core/analysis/liveness.h"
#include "heddle/core/analysis/weights.h"
#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ops/ops.h"
#include "heddle/search/memory/trial.h"

namespace heddle::search {
namespace {

std::string ModuleOf(std::string_view scope) {
  std::string module;
  if (scope.empty()) return "-";
  for (std::string_view part : Split(scope, '.')) {
    bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    module += fmt::format("{}{}", module.empty() ? "" : ".", number ? "*" : part);
  }
  return module;
}

class Lister {
 public:
  Lister(const Graph& before, const Graph& graph, const price::GraphCosts& costs)
      : graph_(graph), costs_(costs), is_copy_(graph.node_count()) {
    for (NodeId node : graph.nodes()) {
      if (graph[node].phase == Phase::kForward || graph[node].result_count == 0) continue;
      is_copy_[node.index()] =
          !before.FindValue(graph.name(graph[node].first_result)) && !IsCopyOfHost(node);
    }
  }

  std::vector<DecisionLine> Run() {
    AddKept();
    for (NodeId node : graph_.nodes()) {
      if (is_copy_[node.index()]) AddRecomputed(node);
      if (graph_[node].op == op::mem_offload) AddOffloaded(node);
    }
    std::vector<DecisionLine> list;
    for (auto& [key, line] : lines_) list.push_back(std::move(line));
    std::ranges::stable_sort(list, [](const DecisionLine& a, const DecisionLine& b) {
      return a.what != b.what ? a.what < b.what : a.bytes > b.bytes;
    });
    return list;
  }

 private:
  using What = DecisionLine::What;

  bool IsCopyOfHost(NodeId node) const {
    NodeId launch = LaunchOf(graph_, node);
    OpId id = graph_[launch ? launch : node].op;
    return id == op::mem_offload || id == op::mem_reload;
  }

  void Add(What what, NodeId node, Bytes bytes, Nanos time) {
    // A wait counts as its launch.
    NodeId launch = LaunchOf(graph_, node);
    std::string op(graph_.op(launch ? launch : node).name());
    std::string module = ModuleOf(graph_.scope(node));
    DecisionLine& line = lines_[{what, module, op}];
    line.what = what;
    line.module = module;
    line.op = op;
    ++line.count;
    line.bytes += bytes;
    line.time += time;
  }

  void AddKept() {
    NodeId last;
    for (NodeId node : graph_.nodes()) {
      if (graph_[node].phase == Phase::kForward) last = node;
    }
    if (!last) return;
    Liveness liveness(graph_);
    Weights weights(graph_);
    for (const Storage& storage : liveness.storages()) {
      bool crosses = storage.birth && storage.birth <= last &&
                     (!storage.death || last < storage.death) && storage.space == Space::kDevice;
      // Later passes decide about gathered weights, unless they are marked.
      bool open = weights.is_weight(storage.value) && graph_[storage.value].keep == Keep::kDefault;
      if (crosses && !open) Add(What::kKept, storage.birth, storage.bytes, {});
    }
  }

  void AddRecomputed(NodeId node) {
    // Counted with its wait.
    if (graph_.op(node).effect() == Effect::kComm && !LaunchOf(graph_, node)) return;
    Nanos time = costs_.nodes[node].compute;
    if (NodeId launch = LaunchOf(graph_, node))
      time += costs_.nodes[launch].pack + costs_.nodes[launch].collective.total();
    Bytes bytes;
    for (ValueId v : graph_.results(node)) {
      if (IsReadByOthers(v)) bytes += graph_.types().bytes(graph_.type(v));
    }
    Add(What::kRecomputed, node, graph_.op(node).effect() == Effect::kView ? Bytes{} : bytes, time);
  }

  void AddOffloaded(NodeId node) {
    ValueId v = graph_.operands(node)[0];
    Add(What::kOffloaded, graph_[v].producer, graph_.types().bytes(graph_.type(v)),
        costs_.nodes[node].collective.total() * 2);
  }

  bool IsReadByOthers(ValueId v) {
    if (read_.empty()) {
      read_.resize(graph_.value_count());
      for (NodeId node : graph_.nodes()) {
        if (is_copy_[node.index()]) continue;
        for (ValueId operand : graph_.operands(node)) {
          if (operand) read_[operand.index()] = true;
        }
      }
    }
    return read_[v.index()];
  }

  const Graph& graph_;
  const price::GraphCosts& costs_;
  std::vector<bool> is_copy_;
  // By value: whether a node other than a copy reads it. Computed on first use.
  std::vector<bool> read_;
  std::map<std::tuple<What, std::string, std::string>, DecisionLine> lines_;
};

}  // namespace

std::string_view Name(DecisionLine::What what) {
  constexpr std::string_view kNames[] = {"kept", "recomputed", "offloaded"};
  return kNames[static_cast<size_t>(what)];
}

Result<std::vector<DecisionLine>> ListDecisions(const Trials& trials, const Marks& marks) {
  HEDDLE_TRY(Module module, trials.CarriedOut(marks));
  const Graph& graph = module.graphs[0];
  HEDDLE_TRY(price::GraphCosts costs, trials.model().Price(module, graph));
  return Lister(trials.graph(), graph, costs).Run();
}

std::string FormatDecisions(const std::vector<DecisionLine>& lines) {
  TextTable table({"decision", "module", "op", "count>", "bytes>", "time>"});
  std::string_view last;
  for (const DecisionLine& line : lines) {
    std::string_view what = Name(line.what);
    table.AddRow({what == last ? "" : std::string(what), line.module, line.op,
                  std::to_string(line.count), Format(line.bytes),
                  line.what == DecisionLine::What::kKept ? "-" : Format(line.time)});
    last = what;
  }
  return table.Format();
}

nlohmann::ordered_json ToJson(const std::vector<DecisionLine>& lines) {
  auto list = nlohmann::ordered_json::array();
  for (const DecisionLine& line : lines) {
    list.push_back({{"decision", Name(line.what)},
                    {"module", line.module},
                    {"op", line.op},
                    {"count", line.count},
                    {"bytes", line.bytes.value},
                    {"ms", static_cast<double>(line.time.value) / kNanosPerMilli}});
  }
  return list;
}

}  // namespace heddle::search
