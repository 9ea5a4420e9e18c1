// Buckets: collectives that are launched together.
//
//   %a! = comm.all_gather(%x, why=unshard)                    %a!    = comm.all_gather(%x, %y, why=unshard)
//   %a  = comm.wait(%a!)                       becomes        %a, %b = comm.wait(%a!)
//   %b! = comm.all_gather(%y, why=unshard)
//   %b  = comm.wait(%b!)
//
// Gathers start where the first of them did, and what they gather is made there; reductions start where the last of them did.
// All are waited for where the first wait was, if it can be there. Tensors stand in a payload in the order of their parameters,
// which is FSDP2's.
#pragma once

#include <string>
#include <vector>

#include "heddle/compile/manager/pass.h"
#include "heddle/core/analysis/weights.h"

namespace heddle::compile {

enum class PayloadOrder : uint8_t {
  // By parameter, as FSDP2 packs.
  kParameter,
  // As launches stand in the graph.
  kGraph,
};
Result<PayloadOrder> ParsePayloadOrder(std::string_view name);

// The passes that make buckets have an option `order`, and count the same.
inline constexpr std::string_view kOrderHelp =
    "parameter: tensors are packed as FSDP2 packs them; graph: as they stand, to compare";
inline constexpr std::string_view kBucketStats[] = {"launches", "buckets"};

// Launches may share a bucket only if all of this is equal.
struct BucketKey {
  Phase phase;
  OpId op;
  uint64_t over;
  uint8_t stream;
  Why why;
  DType dtype;
  ReduceOp reduce = ReduceOp::kSum;
  // Its bits: any number may stand in a text.
  uint64_t scale = 0;
  auto operator<=>(const BucketKey&) const = default;
};
// None for a launch that has tensors of several types.
std::optional<BucketKey> KeyOf(const Graph& graph, NodeId launch);

// Launches none of which depends on another. All are asked about in execution order.
class IndependentLaunches {
 public:
  // `graph` outlives this.
  explicit IndependentLaunches(const Graph& graph) : graph_(&graph) {}

  const std::vector<NodeId>& list() const { return list_; }
  // The first of the launches that `launch` depends on, or none.
  NodeId FindNeeded(NodeId launch);
  // `launch` depends on none.
  void Add(NodeId launch);

 private:
  const Graph* graph_;
  std::vector<NodeId> list_;
  // By node from the first launch on: the first of the launches that it is or depends on, or none.
  std::vector<NodeId> needs_;
};

class Bucketer {
 public:
  Bucketer(Graph& graph, PassContext& context, PayloadOrder order);

  // Gathers of parameters and reductions of gradients, in execution order.
  const std::vector<NodeId>& launches() const { return launches_; }

  // The parameter of tensor `i` of a launch, or -1. A weight is known by what is gathered, a gradient by what comes out.
  int64_t ParamOf(NodeId launch, size_t i) const;
  // Adds the launch to the members, or adds a remark if it depends on one of them.
  bool Join(IndependentLaunches& members, NodeId launch);
  // Launches of one key, in execution order, that may share a launch. One that depends on another of them is left out, with a
  // remark.
  void Add(const std::vector<NodeId>& members);
  // Merges what was added.
  Changed Finish();

 private:
  struct Tensor {
    ValueId operand;
    // What its wait gives.
    ValueId result;
    int64_t dim;
    std::string unit;
    int64_t param;
  };
  std::vector<Tensor> TensorsOf(const std::vector<NodeId>& members);
  // The launch and the wait of a bucket. They stand behind all nodes, until the scheduler finds their places.
  std::pair<NodeId, NodeId> Merge(Rewriter& rewriter, const std::vector<NodeId>& members);
  Attrs MergedAttrs(NodeId first, const std::vector<Tensor>& tensors) const;
  ScopeId CommonScope(const std::vector<NodeId>& members);

  Graph& graph_;
  PassContext& context_;
  PayloadOrder order_;
  Weights weights_;
  std::vector<NodeId> launches_;
  // By launch: its wait.
  std::vector<NodeId> wait_of_;
  std::vector<std::vector<NodeId>> buckets_;
};

// What travels: gathered weights, or gradients before they are scattered.
Bytes TravellingBytes(const Graph& graph, NodeId launch);
// Of all launches of one key, in execution order, each joins the open bucket if there is room for it and it depends on nothing in
// there; otherwise it opens the next.
std::vector<std::vector<NodeId>> BucketsBySize(const Graph& graph, Bucketer& bucketer,
                                               Bytes max_bytes);

}  // namespace heddle::compile
