// CostModel: prices the nodes of a graph on a cluster.
//
// Costs belong to nodes and not to an order: the same costs serve every schedule of a graph.
// `price/sim` determines when things happen.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "heddle/core/ir/graph.h"
#include "heddle/price/cost/cluster/cluster.h"
#include "heddle/price/cost/expert_skew.h"
#include "heddle/price/cost/measured.h"

namespace heddle::price {

// The model that prices collectives.
enum class CollectiveModel : uint8_t { kNative, kNccl };
// `native`, `nccl-2.27`
std::string_view Name(CollectiveModel model);

struct CostOptions {
  // None: as many as the mesh needs.
  std::optional<int64_t> nodes;
  CollectiveModel collectives = CollectiveModel::kNative;
  Execution execution = Execution::kHeddle;
  // Prices ops that the execution fuses as one kernel. The time of a node then depends on its
  // neighbours. Without it, times of nodes add up, as the bounds of searches require.
  bool fused = false;
  // Memory is that of Heddle's device program, if the execution has one (HasDeviceProgram).
  bool device_program = false;
  TimelineRules rules = {};
  // Distribution of rows over experts.
  ExpertSkew expert_skew = {};
};

// Links that a transfer uses. Concurrent transfers share them.
enum class Links : uint8_t { kNone = 0, kNode = 1, kNetwork = 2, kBoth = 3 };

// Time of a transfer, without contention.
struct CollectiveCost {
  // Time until bytes flow; links are free meanwhile.
  Nanos latency;
  // Time without contention.
  Nanos transfer;
  Links links = Links::kNone;

  Nanos total() const { return latency + transfer; }
};

// The cost of a message from one rank to another, by the fastest protocol. It shares no links.
CollectiveCost TransferCost(const Cluster& cluster, Bytes bytes, bool between_nodes);

// The stream of a node that does not compute: a communicator, one direction of the copy engine, or
// one direction between two coordinates of a pipeline.
struct CommStream {
  enum class Kind : uint8_t { kCommunicator, kCopyOut, kCopyIn, kSend, kReceive };
  Kind kind = Kind::kCommunicator;
  Axes over;
  uint8_t stream = 0;
  // The other coordinate of a send or receive.
  int64_t peer = 0;
  GroupShape group;
  // `dp`, `dp:1` for its stream 1, `copy out`.
  std::string name;
};

// Cost of one node.
struct NodeCost {
  static constexpr uint32_t kCompute = UINT32_MAX;

  // Time on the compute stream: a kernel with its launch; at a wait, the unpacking.
  Nanos compute;
  // A start: time before the launch, if packing does not run on the collective's stream.
  Nanos ahead;
  // A node that starts a collective or a copy: its stream, an index into GraphCosts::streams; the
  // packing there, and the rest.
  uint32_t stream = kCompute;
  Nanos pack;
  CollectiveCost collective;
  // Whether the time was measured.
  bool measured = false;
  // Part of a fused kernel that another node launches.
  bool in_kernel = false;
  // Its results never leave a fused kernel, so they need no memory.
  bool inside = false;
};

// How much of a file of measured times a graph used.
struct MeasuredUse {
  struct Count {
    size_t used = 0;
    size_t given = 0;
  };
  Count ops;
  Count nodes;
  Count curves;
  // Names in the file that no node has.
  std::vector<std::string> unknown_nodes;
};

// Costs of all nodes of a graph.
struct GraphCosts {
  Table<NodeId, NodeCost> nodes;
  // In the order of their first nodes.
  std::vector<CommStream> streams;
  // Time of matrix products and attention at the device's peak rate: of the forward phase, and of
  // all.
  Nanos ideal_forward;
  Nanos ideal;
  // Time before the first node, to pass in the inputs and outputs.
  Nanos around;
  // Time on the compute stream that the device waits for the host to launch kernels.
  Nanos host;
  // Time on the compute stream that the timeline rules add for launches.
  Nanos launches;
  MeasuredUse measured;
};

// Cost of a collective of several tensors: on the compute stream before its launch and at its wait,
// and on its own stream.
struct BucketCost {
  Nanos ahead;
  Nanos length;
  Nanos behind;
};

// Tensors that a collective packs before it starts, or unpacks after its wait.
struct PackedTensors {
  bool gather = false;
  int64_t members = 1;
  bool before = false;
  bool after = false;
  // The inputs and the results of one rank.
  Bytes given;
  Bytes result;
};

class CostModel {
 public:
  static Result<CostModel> Make(Cluster cluster, const CostOptions& options,
                                std::optional<MeasuredCosts> measured = std::nullopt);

  const Cluster& cluster() const { return cluster_; }
  const CostOptions& options() const { return options_; }
  // The same model without fused kernels.
  CostModel Additive() const;
  // The number of nodes for the ranks of `mesh`: from the options, or as many as necessary. Fails
  // if the mesh does not fit.
  Result<int64_t> NodesFor(const Mesh& mesh) const;

  // Whether the step runs as Heddle's device program, in which values inside kernels need no memory
  // (core/kernel/kernel_memory.h).
  bool HasDeviceProgram() const;
  // The device memory of a step whose values need `peak`, including losses of the allocator and
  // fixed buffers.
  Bytes DevicePeak(Bytes peak) const;
  // The range of a predicted step, from steps that were measured. None: no step was.
  struct StepRange {
    Nanos low;
    Nanos high;
  };
  std::optional<StepRange> RangeOf(Nanos step) const;
  // A copy between device and host. The cluster must have a host link.
  CollectiveCost Copy(Bytes bytes) const;
  // Packing tensors of `bytes` into one payload, or unpacking them.
  Nanos Pack(Bytes bytes) const { return Move(bytes * 2); }
  // Packing and unpacking of a collective, by the timeline rules.
  BucketCost Packing(const PackedTensors& tensors) const;

  // Measured times, or null.
  const MeasuredCosts* measured() const { return measured_ ? &*measured_ : nullptr; }

  // `graph` must be local.
  Result<GraphCosts> Price(const Module& module, const Graph& graph) const;

 private:
  CostModel(Cluster cluster, const CostOptions& options, std::optional<MeasuredCosts> measured)
      : cluster_(std::move(cluster)), options_(options), measured_(std::move(measured)) {
    if (measured_ && measured_->rules) options_.rules = *measured_->rules;
  }

  // Time of a kernel that reads and writes `bytes` in total.
  Nanos Move(Bytes bytes) const;

  Cluster cluster_;
  CostOptions options_;
  std::optional<MeasuredCosts> measured_;
};

// Prices collectives on one mesh. Caches the locations of groups.
class CollectiveCosts {
 public:
  // Both must outlive this; the mesh must fit the cluster.
  CollectiveCosts(const CostModel& model, const Mesh& mesh) : model_(model), mesh_(mesh) {}

  // The location of the groups over these axes.
  const GroupShape& Group(const Axes& over);
  // `given` is the input of one rank.
  Result<CollectiveCost> Cost(CollectiveKind kind, Bytes given, const Axes& over);
  // The cost of a bucket of `members` tensors along their first dimensions, by the rules of the
  // model.
  Result<BucketCost> Bucket(CollectiveKind kind, Bytes given, int64_t members, const Axes& over);
  // The measured curve, or null.
  Result<const Curve*> CurveOf(CollectiveKind kind, const Axes& over);

 private:
  const CostModel& model_;
  const Mesh& mesh_;
  // Keyed by the set of axes: their order does not change the location of ranks.
  std::map<uint32_t, GroupShape> groups_;
  std::map<std::pair<CollectiveKind, Axes>, const Curve*> curves_;
};

}  // namespace heddle::price
