// CostModel: what everything in a graph costs on a cluster.
//
// Costs are facts of nodes, not of an order: the same costs serve every schedule of a graph. `sim/` says when things happen.
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

enum class CollectiveModel : uint8_t { kNative, kNccl };
// `native`, `nccl-2.27`
std::string_view Name(CollectiveModel model);

struct CostOptions {
  // None: as many as the mesh needs.
  std::optional<int64_t> nodes;
  CollectiveModel collectives = CollectiveModel::kNative;
  // Price pointwise ops that feed each other as one kernel, as a compiler would make of them.
  bool fuse = false;
  TimelineRules rules = {};
  // How rows divide among experts that ranks share.
  ExpertSkew expert_skew = {};
};

// Links that a transfer goes over. Those under way at the same time share them.
enum class Links : uint8_t { kNone = 0, kNode = 1, kNetwork = 2, kBoth = 3 };

struct CollectiveCost {
  // Until bytes flow; links are free meanwhile.
  Nanos latency;
  // With the links to itself.
  Nanos transfer;
  Links links = Links::kNone;

  Nanos total() const { return latency + transfer; }
};

// Where a node that does not compute runs: a communicator, or one direction of the copy engine.
struct CommStream {
  enum class Kind : uint8_t { kCommunicator, kCopyOut, kCopyIn };
  Kind kind = Kind::kCommunicator;
  Axes over;
  uint8_t stream = 0;
  GroupShape group;
  // `dp`, `dp:1` for its stream 1, `copy out`.
  std::string name;
};

struct NodeCost {
  static constexpr uint32_t kCompute = UINT32_MAX;

  // On the compute stream: a kernel with its launch; at a wait, the unpacking.
  Nanos compute;
  // A start: what runs there before the launch, where packing does not run on the stream of the collective.
  Nanos ahead;
  // A node that starts a collective or a copy: its stream, an index into GraphCosts::streams; packing there, and the rest.
  uint32_t stream = kCompute;
  Nanos pack;
  CollectiveCost collective;
  // The time was measured.
  bool measured = false;
};

// How much of a file of measured times a graph made use of.
struct MeasuredUse {
  struct Count {
    size_t used = 0;
    size_t given = 0;
  };
  Count ops;
  Count nodes;
  Count curves;
  // Names that no node has.
  std::vector<std::string> unknown_nodes;
};

struct GraphCosts {
  Table<NodeId, NodeCost> nodes;
  // In the order of their first nodes.
  std::vector<CommStream> streams;
  // Matrix products and attention of the forward phase, and of all, at the peak rate of the device.
  Nanos ideal_forward;
  Nanos ideal;
  // Before the first node: what handing in the inputs takes, and the outputs.
  Nanos around;
  // Time on the compute stream that the timeline rules add for launches.
  Nanos launches;
  MeasuredUse measured;
};

// What a collective of several tensors costs: on the compute stream before its launch and at its wait, and on its own stream.
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
  // The nodes that ranks of `mesh` stand on: those of the options, or as many as it takes. An error if it does not fit.
  Result<int64_t> NodesFor(const Mesh& mesh) const;

  // A copy between device and host, where the cluster has a link to it.
  CollectiveCost Copy(Bytes bytes) const;
  // Packing tensors of `bytes` into one payload, or unpacking them.
  Nanos Pack(Bytes bytes) const { return Move(bytes * 2); }
  // Packing and unpacking of a collective, by the timeline rules.
  BucketCost Packing(const PackedTensors& tensors) const;

  // Measured times, or null.
  const MeasuredCosts* measured() const { return measured_ ? &*measured_ : nullptr; }

  // `graph` is local.
  Result<GraphCosts> Price(const Module& module, const Graph& graph) const;

 private:
  CostModel(Cluster cluster, const CostOptions& options, std::optional<MeasuredCosts> measured)
      : cluster_(std::move(cluster)), options_(options), measured_(std::move(measured)) {
    if (measured_ && measured_->rules) options_.rules = *measured_->rules;
  }

  // Time in which a kernel reads and writes `bytes` in all.
  Nanos Move(Bytes bytes) const;

  Cluster cluster_;
  CostOptions options_;
  std::optional<MeasuredCosts> measured_;
};

// The price of collectives on one mesh. Remembers where groups are, so that asking again is cheap.
class CollectiveCosts {
 public:
  // Both outlive this; the mesh fits the cluster.
  CollectiveCosts(const CostModel& model, const Mesh& mesh) : model_(model), mesh_(mesh) {}

  const GroupShape& Group(const Axes& over);
  // `given` is what one rank hands in.
  Result<CollectiveCost> Cost(CollectiveKind kind, Bytes given, const Axes& over);
  // Of `members` tensors along their first dimensions, by the rules of the model.
  Result<BucketCost> Bucket(CollectiveKind kind, Bytes given, int64_t members, const Axes& over);
  // What was measured of it, or null.
  Result<const Curve*> CurveOf(CollectiveKind kind, const Axes& over);

 private:
  const CostModel& model_;
  const Mesh& mesh_;
  // By the set of axes: their order does not move ranks.
  std::map<uint32_t, GroupShape> groups_;
  std::map<std::pair<CollectiveKind, Axes>, const Curve*> curves_;
};

}  // namespace heddle::price
