#include "heddle/price/cost/comm/native_model.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace heddle::price {
namespace {

// Bytes that cross the links, for a collective of one byte: all ports of the node with the fewest
// ranks together, and the links of one device to its node.
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
    // Each rank sends a part to every other rank. Parts for other nodes leave through its own port.
    return {remote * fewest, (most - 1) / n};
  }
  // A device gets the parts that it neither has nor receives through its own port from its
  // neighbours.
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
    // All messages are sent at the same time, and each costs its sender some time.
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
    // A tree has fewer steps than a ring, but reduce-scatter and all-gather together also reduce
    // everywhere.
    time = std::max(time, BestProtocol(CollectiveKind::kAllGather, count, group, cluster));
  }
  return WholeNanos(time);
}

}  // namespace heddle::price
