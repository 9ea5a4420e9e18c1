// Buckets: collectives that are launched together.
//
//  %a! = comm.all_gather(%x, why=unshard)                %a!    = comm.all_gather(%x, %y, ...)
//   %a  = comm.wait(%a!)                       becomes    %a, %b = comm.wait(%a!)
//   %b! = comm.all_gather(%y, why=unshard)
//   %b  = comm.wait(%b!)
//
// Gathers start at the position of the first one, and their inputs are computed there. Reductions
// start at the position of the last one. The bucket's wait is at the first wait's position, if
// dependences allow it. Tensors in a payload are in parameter order, as in FSDP2.
#pragma once

#include <string>
#include <vector>

#include "heddle/compile/manager/pass.h"
#include "heddle/core/analysis/weights.h"

namespace heddle::compile {

enum class PayloadOrder : uint8_t {
  // In parameter order, as FSDP2 packs them.
  kParameter,
  // In launch order.
  kGraph,
};
Result<PayloadOrder> ParsePayloadOrder(std::string_view name);

// An option `order` of passes that create buckets, and the statistics of these passes.
inline constexpr std::string_view kOrderHelp =
    "order of tensors in a bucket: parameter (like FSDP2) or graph (order of launches, for "
    "comparison)";
inline constexpr std::string_view kBucketStats[] = {"launches", "buckets"};

// Launches may share a bucket only if their keys are equal.
struct BucketKey {
  Phase phase;
  OpId op;
  uint64_t over;
  uint8_t stream;
  Why why;
  DType dtype;
  ReduceOp reduce = ReduceOp::kSum;
  // The bits of the scale, because a text may contain any number.
  uint64_t scale = 0;
  auto operator<=>(const BucketKey&) const = default;
};
// Nullopt for a launch with tensors of several types.
std::optional<BucketKey> KeyOf(const Graph& graph, NodeId launch);

// A set of mutually independent launches. Queries must be in execution order.
class IndependentLaunches {
 public:
  // `graph` must outlive this.
  explicit IndependentLaunches(const Graph& graph) : graph_(&graph) {}

  const std::vector<NodeId>& list() const { return list_; }
  // The first launch of the set that `launch` depends on, or none.
  NodeId FindNeeded(NodeId launch);
  // Adds a launch that depends on no launch of the set.
  void Add(NodeId launch);

 private:
  const Graph* graph_;
  std::vector<NodeId> list_;
  // Indexed by node from the first launch on: the first launch that it is or depends on, or none.
  std::vector<NodeId> needs_;
};

class Bucketer {
 public:
  Bucketer(Graph& graph, PassContext& context, PayloadOrder order);

  // Gathers of parameters and reductions of gradients, in execution order.
  const std::vector<NodeId>& launches() const { return launches_; }

  // The parameter of tensor `i` of a launch, or -1. Identified by the input of a gather, or the
  // result of a reduction.
  int64_t ParamOf(NodeId launch, size_t i) const;
  // Adds the launch to the members, or adds a remark if it depends on one of them.
  bool Join(IndependentLaunches& members, NodeId launch);
  // Adds launches with equal keys, in execution order, as a bucket. Omits launches that depend on
  // another one, with a remark.
  void Add(const std::vector<NodeId>& members);
  // Merges the added buckets.
  Changed Finish();

 private:
  struct Tensor {
    ValueId operand;
    // The result of its wait.
    ValueId result;
    int64_t dim;
    std::string unit;
    int64_t param;
  };
  std::vector<Tensor> TensorsOf(const std::vector<NodeId>& members);
  // The launch and the wait of a bucket. They are after all nodes until the scheduler places them.
  std::pair<NodeId, NodeId> Merge(Rewriter& rewriter, const std::vector<NodeId>& members);
  Attrs MergedAttrs(NodeId first, const std::vector<Tensor>& tensors) const;
  ScopeId CommonScope(const std::vector<NodeId>& members);

  Graph& graph_;
  PassContext& context_;
  PayloadOrder order_;
  Weights weights_;
  std::vector<NodeId> launches_;
  // Indexed by launch: its wait.
  std::vector<NodeId> wait_of_;
  std::vector<std::vector<NodeId>> buckets_;
};

// Transferred bytes: of gathered weights, or of gradients before they are scattered.
Bytes TravellingBytes(const Graph& graph, NodeId launch);
// Groups launches with equal keys, in execution order. A launch joins the open bucket if it fits
// and depends on no member; otherwise it opens the next bucket.
std::vector<std::vector<NodeId>> BucketsBySize(const Graph& graph, Bucketer& bucketer,
                                               Bytes max_bytes);

}  // namespace heddle::compile
