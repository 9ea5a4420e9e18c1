#include "heddle/core/analysis/transfers.h"

#include <map>
#include <optional>
#include <vector>

#include "heddle/core/analysis/launch.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/program.h"
#include "heddle/core/ir/text/print.h"

namespace heddle {
namespace {

// One end of a transfer: a launch of the coordinate `at`, the number `index` of its edge.
struct Transfer {
  size_t at = 0;
  size_t other = 0;
  bool sends = false;
  size_t index = 0;
};

class TransferChecker {
 public:
  TransferChecker(const Module& module, AxisId axis)
      : module_(module), axis_(axis), next_(module.graphs.size()), ends_(module.graphs.size()) {}

  Status Run() {
    HEDDLE_RETURN_IF_ERROR(FindLaunches());
    for (const auto& [edge, sent] : launches_[0]) HEDDLE_RETURN_IF_ERROR(CheckEdge(edge, sent));
    for (const auto& [edge, received] : launches_[1]) {
      if (!launches_[0].contains(edge)) HEDDLE_RETURN_IF_ERROR(CheckEdge(edge, {}));
    }
    return CheckOrder();
  }

  std::vector<TransferEnds> Transfers() {
    HEDDLE_CHECK(FindLaunches().ok(), "transfers that were checked");
    std::vector<TransferEnds> out;
    for (const auto& [edge, sent] : launches_[0]) {
      const std::vector<NodeId>& received = launches_[1].at(edge);
      for (size_t i = 0; i < sent.size(); ++i)
        out.push_back({edge.first, sent[i], edge.second, received[i]});
    }
    return out;
  }

 private:
  // A coordinate that sends, and one that receives.
  using Edge = std::pair<size_t, size_t>;

  static Edge EdgeOf(const Transfer& end) {
    return end.sends ? Edge(end.at, end.other) : Edge(end.other, end.at);
  }

  Status FindLaunches() {
    for (size_t at = 0; at < module_.graphs.size(); ++at) {
      const Graph& graph = module_.graphs[at];
      ends_[at].resize(graph.node_count());
      for (NodeId id : graph.nodes()) {
        if (!IsTransfer(graph, id)) continue;
        bool sends = graph[id].op == op::comm_send;
        const Attrs& attrs = graph.attrs(id);
        auto other = static_cast<size_t>(std::get<int64_t>(*attrs.Find(sends ? "to" : "from")));
        if (std::get<Axes>(*attrs.Find("over")) != Axes(axis_) || other == at)
          return Error(Diag::kTransfer,
                       "`%{}` of @{} is not between two coordinates of the pipeline axis `{}`",
                       graph.name(graph[id].first_result), graph.name(), module_.mesh[axis_].name);
        Transfer end{at, other, sends, 0};
        std::vector<NodeId>& launches = launches_[sends ? 0 : 1][EdgeOf(end)];
        end.index = launches.size();
        launches.push_back(id);
        ends_[at][id.index()] = end;
      }
    }
    return Done{};
  }

  std::string_view TagOf(size_t at, NodeId id) const {
    return std::get<std::string>(*module_.graphs[at].attrs(id).Find("tag"));
  }
  // The type of the transferred tensor.
  TypeId TypeOf(size_t at, NodeId id) const {
    const Graph& graph = module_.graphs[at];
    if (graph[id].op == op::comm_send) return graph.type(graph.operands(id)[0]);
    return graph.types().elements(graph.type(graph[id].first_result))[0];
  }

  Status CheckEdge(Edge edge, const std::vector<NodeId>& sent) {
    const std::vector<NodeId>& received = launches_[1][edge];
    auto [from, to] = edge;
    for (size_t i = 0; i < std::min(sent.size(), received.size()); ++i) {
      if (TagOf(from, sent[i]) != TagOf(to, received[i]))
        return Error(Diag::kTransfer,
                     "transfer {} from @{} to @{} is sent as `{}` but received as `{}`", i,
                     NameOf(from), NameOf(to), TagOf(from, sent[i]), TagOf(to, received[i]));
      if (!SameType(module_.graphs[from].types(), TypeOf(from, sent[i]), module_.graphs[to].types(),
                    TypeOf(to, received[i])))
        return Error(Diag::kTransfer, "`{}` from @{} to @{} is sent as {} but received as {}",
                     TagOf(from, sent[i]), NameOf(from), NameOf(to),
                     PrintType(module_, module_.graphs[from], TypeOf(from, sent[i])),
                     PrintType(module_, module_.graphs[to], TypeOf(to, received[i])));
    }
    if (sent.size() == received.size()) return Done{};
    return Error(Diag::kTransfer, "@{} launches {} to @{}, which launches {}", NameOf(from),
                 Counted(sent.size(), "send"), NameOf(to), Counted(received.size(), "receive"));
  }

  const std::string& NameOf(size_t at) const { return module_.graphs[at].name(); }

  // The other end of the transfer that the next node of a coordinate waits for, if it blocks.
  std::optional<NodeId> BlockedOn(size_t at) const {
    NodeId launch = LaunchOf(module_.graphs[at], NodeId(next_[at]));
    if (!launch || !ends_[at][launch.index()]) return std::nullopt;
    const Transfer& end = *ends_[at][launch.index()];
    NodeId other = launches_[end.sends ? 1 : 0].at(EdgeOf(end))[end.index];
    return other.index() < next_[end.other] ? std::nullopt : std::optional(other);
  }
  size_t Partner(size_t at) const {
    return ends_[at][LaunchOf(module_.graphs[at], NodeId(next_[at])).index()]->other;
  }

  // Runs the coordinates until all of them end or block.
  Status CheckOrder() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t at = 0; at < next_.size(); ++at) {
        size_t before = next_[at];
        while (next_[at] < ends_[at].size() && !BlockedOn(at)) ++next_[at];
        moved |= next_[at] != before;
      }
    }
    for (size_t at = 0; at < next_.size(); ++at) {
      if (next_[at] < ends_[at].size()) return Deadlock(at);
    }
    return Done{};
  }

  // Every blocked coordinate waits for a blocked one, so following them reaches a cycle.
  Failure Deadlock(size_t at) const {
    std::vector<bool> seen(next_.size());
    for (; !seen[at]; at = Partner(at)) seen[at] = true;
    std::string cycle;
    size_t start = at;
    do {
      size_t partner = Partner(at);
      NodeId needed = *BlockedOn(at);
      const Graph& other = module_.graphs[partner];
      if (!cycle.empty()) cycle += "; ";
      cycle += fmt::format("@{} waits for `{}` of @{}, a node after its wait for `{}`", NameOf(at),
                           other.name(other[needed].first_result), NameOf(partner),
                           TagOf(partner, LaunchOf(other, NodeId(next_[partner]))));
      at = partner;
    } while (at != start);
    return Error(Diag::kTransfer, "the coordinates deadlock: {}", cycle);
  }

  const Module& module_;
  AxisId axis_;
  // The launches of each edge, in order: sends, and receives.
  std::map<Edge, std::vector<NodeId>> launches_[2];
  // By coordinate: the next node, and the transfers by node.
  std::vector<size_t> next_;
  std::vector<std::vector<std::optional<Transfer>>> ends_;
};

}  // namespace

Status CheckTransfers(const Module& module) {
  std::optional<AxisId> axis = ProgramAxis(module);
  return axis ? TransferChecker(module, *axis).Run() : Status(Done{});
}

std::vector<TransferEnds> FindTransfers(const Module& module) {
  std::optional<AxisId> axis = ProgramAxis(module);
  return axis ? TransferChecker(module, *axis).Transfers() : std::vector<TransferEnds>();
}

}  // namespace heddle
