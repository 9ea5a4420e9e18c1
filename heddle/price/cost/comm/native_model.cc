#include "heddle/price/cost/comm/native_model.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace heddle::price {
namespace {

// Bytes that must pass, for a collective of one byte: through the ports of the node that has the fewest, all of them together,
// and through the links of a device to its node.
struct Traffic {
  double network = 0;
  double node = 0;
};

Traffic TrafficOf(CollectiveKind kind, const GroupShape& group, const Cluster& cluster) {
  auto n = static_cast<double>(group.ranks);
  auto fewest = static_cast<double>(group.fewest_per_node);
  auto most = static_cast<double>(group.most_per_node);
  double remote = (n - fewest) / n;
  if (kind == CollectiveKind::kAllToAll) {
    // Each rank sends a part to every other; through its own port what goes to other nodes.
    return {remote * fewest, (most - 1) / n};
  }
  // What a device does not get through its own port, or has, comes from its neighbours.
  double near = group.most_per_node > 1 ? (n - 1) / n - (n - most) / (n * most) : 0;
  bool all = kind == CollectiveKind::kAllReduce;
  return {remote * (all ? 2 : 1), near * (all ? cluster.all_reduce_passes : 1)};
}

double PortsRate(const GroupShape& group, const Cluster& cluster) {
  return cluster.network_rate.per_nano * static_cast<double>(group.fewest_per_node);
}

double StepsNanos(CollectiveKind kind, const GroupShape& group, const Protocol& protocol) {
  auto node_steps = static_cast<double>(group.ranks - group.nodes);
  auto network_steps = static_cast<double>(group.nodes - 1);
  double ring = node_steps * protocol.node.step_nanos + network_steps * protocol.network.step_nanos;
  if (kind == CollectiveKind::kAllToAll) {
    // All are sent at once; each costs its sender a little.
    return protocol.network.step_nanos * (group.nodes > 1 ? 1 : 0) +
           static_cast<double>(group.ranks - 1) * protocol.node.step_nanos;
  }
  if (kind != CollectiveKind::kAllReduce) return ring;
  auto levels = static_cast<double>(std::bit_width(static_cast<uint64_t>(group.nodes - 1)));
  double tree = static_cast<double>(group.most_per_node - 1) * protocol.node.step_nanos +
                levels * protocol.network.step_nanos;
  return 2 * std::min(ring, tree);
}

double BestProtocol(CollectiveKind kind, double bytes, const GroupShape& group,
                    const Cluster& cluster) {
  Traffic traffic = TrafficOf(kind, group, cluster);
  double best = std::numeric_limits<double>::infinity();
  for (const Protocol& protocol : cluster.protocols) {
    double ports = std::min(PortsRate(group, cluster) * protocol.network.efficiency,
                            protocol.network.most.per_nano);
    double links = std::min(cluster.node_rate.per_nano * protocol.node.efficiency,
                            protocol.node.most.per_nano);
    double flow = std::max(traffic.network * bytes / ports, traffic.node * bytes / links);
    best = std::min(best, protocol.base_nanos + StepsNanos(kind, group, protocol) + flow);
  }
  return best;
}

}  // namespace

Nanos NativeTime(CollectiveKind kind, Bytes bytes, const GroupShape& group,
                 const Cluster& cluster) {
  if (group.ranks <= 1) return {0};
  auto count = static_cast<double>(bytes.value);
  double time = BestProtocol(kind, count, group, cluster);
  if (kind == CollectiveKind::kAllReduce) {
    // A tree has fewer steps than the ring of a gather. But who can reduce everywhere can scatter and gather.
    time = std::max(time, BestProtocol(CollectiveKind::kAllGather, count, group, cluster));
  }
  return WholeNanos(time);
}

}  // namespace heddle::price
