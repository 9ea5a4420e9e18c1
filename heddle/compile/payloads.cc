#include "heddle/compile/payloads.h"

#include <map>

#include "heddle/core/analysis/weights.h"
#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

class PayloadTable {
 public:
  explicit PayloadTable(const Graph& graph) : graph_(graph), weights_(graph) {
    for (const Input& input : graph.inputs()) {
      if (input.role == InputRole::kParam) labels_.emplace(input.index, input.label);
    }
    for (NodeId id : graph.nodes()) {
      if (graph[id].op == op::comm_wait) wait_of_[graph[graph.operands(id)[0]].producer] = id;
    }
  }

  std::string Format() {
    for (NodeId id : graph_.nodes()) {
      if (IsUnshard(graph_, id) || IsGradReduction(graph_, id)) Add(id);
    }
    return table_.Format();
  }

 private:
  void Add(NodeId launch) {
    bool gathers = graph_[launch].op == op::comm_all_gather;
    std::string_view kind = graph_.op(launch).name();
    int64_t offset = 0;
    for (size_t i = 0; i < graph_.operands(launch).size(); ++i) {
      ValueId given = graph_.operands(launch)[i];
      ValueId taken = graph_.results(wait_of_[launch])[i];
      ValueId part = gathers ? given : taken;
      int64_t bytes = graph_.types().bytes(graph_.type(part)).value;
      auto label = labels_.find(weights_.param(part));
      table_.AddRow({i == 0 ? std::string(Name(graph_[launch].phase)) : "",
                     i == 0 ? std::string(kind.substr(kind.find('.') + 1)) : "",
                     std::string(UnitOf(graph_, launch, i)),
                     label != labels_.end() ? label->second : "-", std::to_string(offset),
                     std::to_string(bytes)});
      offset += bytes;
    }
  }

  const Graph& graph_;
  Weights weights_;
  std::map<int64_t, std::string> labels_;
  std::map<NodeId, NodeId> wait_of_;
  TextTable table_{{"phase", "collective", "unit", "parameter", "offset>", "bytes>"}};
};

}  // namespace

std::string FormatPayloads(const Graph& graph) { return PayloadTable(graph).Format(); }

}  // namespace heddle::compile
