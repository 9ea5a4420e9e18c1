// Coordinates: the graphs of a pipeline's coordinates while they are written, and the transfers
// between them.
//
// Values are those of the step of one micro-batch. A value of micro-batch `b` has one copy on each
// coordinate that computes or receives it; kOnce means the whole step.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "heddle/core/ir/edit/graph_copier.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

class Coordinates {
 public:
  static constexpr int64_t kOnce = -1;

  // `step` must outlive this object.
  Coordinates(const Mesh& mesh, AxisId axis, const Graph& step, int64_t micro_batches);

  int32_t count() const { return static_cast<int32_t>(all_.size()); }
  Graph& graph(int32_t at) { return all_[static_cast<size_t>(at)].graph; }
  std::vector<Graph> TakeGraphs();

  // The copy of a value, or none.
  ValueId copy(int32_t at, int64_t micro_batch, ValueId value) const;
  void SetCopy(int32_t at, int64_t micro_batch, ValueId value, ValueId copy);
  void AddInput(int32_t at, int64_t micro_batch, const Input& input);
  // Copies a node whose operands have copies: those of the micro-batch, or of the step.
  void CopyNode(int32_t at, int64_t micro_batch, NodeId node);
  // Appends a node with one result, in the scope of `like`.
  ValueId Append(int32_t at, OpId op, const std::vector<ValueId>& operands, const Attrs& attrs,
                 const Type& type, std::string_view name, NodeId like, Phase phase);
  void CopyOutput(int32_t at, const Output& output);

  // Sends a copy to another coordinate. `number` distinguishes sends of one value: the micro-batch,
  // kOnce, or -2 - K for a part that coordinate K computes.
  void Send(int32_t from, int32_t to, ValueId value, int64_t number, ValueId copy, Phase phase);
  // Receives what the other coordinate sent. Launches earlier receives of the edge first, because
  // both ends must launch them in one order.
  ValueId Receive(int32_t at, int32_t from, ValueId value, int64_t number, Phase phase);
  // Waits for all sends so far.
  void WaitForSends(Phase phase);

 private:
  struct Coordinate {
    Coordinate(const Mesh& mesh, const Graph& step, const std::string& name, int64_t micro_batches)
        : graph(name, step.ops()),
          copier(mesh, step, graph),
          copies(static_cast<size_t>(micro_batches) + 1) {}
    Graph graph;
    GraphCopier copier;
    // By micro-batch, and at the end those of the step; by value.
    std::vector<std::vector<ValueId>> copies;
  };
  // A transfer that one end has launched.
  struct Transfer {
    ValueId value;
    int64_t number = 0;
    Type type;
    // The handle of the send.
    ValueId sent;
    // Receives of the opposite edge that the sender had launched before: they are complete when
    // this transfer is.
    size_t acknowledged = 0;
  };
  struct Edge {
    std::vector<Transfer> transfers;
    // How many of them the receiver has launched, and for how many the sender has waited.
    size_t received = 0;
    size_t waited = 0;
    // Handles of receives without a wait, by position.
    std::map<size_t, ValueId> open;
  };

  Edge& edge(int32_t from, int32_t to) { return edges_[{from, to}]; }
  void LaunchReceive(int32_t at, int32_t from, Edge& edge, Phase phase);
  void WaitForSends(int32_t from, int32_t to, size_t end, Phase phase);
  ValueId Wait(int32_t at, ValueId handle, const Type& type, const std::string& name, NodeId like,
               Phase phase);
  Attrs TransferAttrs(std::string_view end, int32_t other) const;
  std::string TagOf(ValueId value, int64_t number) const;

  const Mesh& mesh_;
  AxisId axis_;
  const Graph& step_;
  // Never moves, because copiers refer to graphs.
  std::deque<Coordinate> all_;
  std::map<std::pair<int32_t, int32_t>, Edge> edges_;
};

}  // namespace heddle::compile
