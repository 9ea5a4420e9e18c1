#include "heddle/price/cost/comm/torch_model.h"

#include <algorithm>

#include "heddle/price/cost/cluster/rate.h"

namespace heddle::price {
namespace {

// Rates are in GB/s, which is bytes per nanosecond.
struct Network {
  double node;
  double network;
  // The maximum rate of small messages within a node, by protocol.
  double low_latency;
  double low_latency_128;
};
constexpr Network kNetworks[] = {{240, 25, 87.7, 8 * 20.0}, {370, 50, 141, 16 * 36.7}};
constexpr double kDevicesPerNode = 8;
// For larger sizes on more than two nodes, rates grow with a power of the size.
constexpr double kLarge = 50e6;
constexpr double kGrowth = 0.17;

struct RingProtocol {
  enum class Kind : uint8_t { kLowLatency, kLowLatency128, kSimple };
  Kind kind;
  // Microseconds.
  double base;
  double near_step;
  double far_step;
  double least_near_step;
};
constexpr RingProtocol kProtocols[] = {{RingProtocol::Kind::kLowLatency, 6.6, 0.6, 2.7, 1.0},
                                       {RingProtocol::Kind::kLowLatency128, 14.0, 1.9, 4.0, 1.0},
                                       {RingProtocol::Kind::kSimple, 8.4, 3.4, 14.0, 3.0}};

double RateOf(RingProtocol::Kind kind, const Network& network, double rate, int64_t nodes) {
  switch (kind) {
    case RingProtocol::Kind::kLowLatency: {
      double most = nodes == 1 ? network.low_latency : nodes == 2 ? 39.0 : 20.4;
      return std::min(most, rate * 0.5);
    }
    case RingProtocol::Kind::kLowLatency128:
      return std::min(rate * 120 / 128, network.low_latency_128);
    case RingProtocol::Kind::kSimple: break;
  }
  return rate;
}

}  // namespace

Nanos TorchTime(CollectiveKind kind, Bytes given, int64_t ranks, TorchNetwork network) {
  const Network& net = kNetworks[static_cast<size_t>(network)];
  auto count = static_cast<double>(ranks);
  auto in = static_cast<double>(given.value);
  double out = kind == CollectiveKind::kAllGather
                   ? in * count
                   : static_cast<double>(given.value / std::max<int64_t>(1, ranks));
  double bytes = in + out;
  auto nodes = (ranks + 7) / static_cast<int64_t>(kDevicesPerNode);
  auto steps = static_cast<double>(ranks - 1);
  if (ranks < 2) return {};
  auto hops = static_cast<double>(nodes - 1);
  double rate = net.node;
  if (nodes > 1) rate = net.network * (0.77 + 0.23 * std::min(1.0, hops / 7));
  if (nodes > 2) rate *= Pow(std::max(bytes, kLarge) / kLarge, kGrowth);
  double best = 0;
  for (const RingProtocol& protocol : kProtocols) {
    if (protocol.kind == RingProtocol::Kind::kLowLatency128 && nodes > 1) continue;
    double near = std::max(protocol.near_step, nodes == 1 ? 0.0 : protocol.least_near_step);
    double micros = protocol.base + (steps - hops) * near + hops * protocol.far_step +
                    bytes / (1000.0 * RateOf(protocol.kind, net, rate, nodes) * count / steps);
    if (best == 0 || micros < best) best = micros;
  }
  return WholeNanos(best * 1000);
}

}  // namespace heddle::price
