#include "heddle/price/cost/comm/nccl_model.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <span>

#include "heddle/price/cost/cluster/rate.h"
#include "heddle/price/cost/comm/nccl_tables.h"

namespace heddle::price {
namespace {

using namespace nccl;  // NOLINT: the tables of this model

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kLL = 0;
constexpr int kLL128 = 1;
constexpr int kSimple = 2;

// floor(log2(n)); 0 for 0.
int WholeLog2(int64_t n) {
  return n <= 0 ? 0 : static_cast<int>(std::bit_width(static_cast<uint64_t>(n))) - 1;
}

// Interpolates a table whose entries begin at 64 bytes and double.
double Between(std::span<const double> table, int64_t bytes) {
  int64_t blocks = bytes >> 6;
  if (blocks <= 0) return table[0];
  double at = Log2(static_cast<double>(blocks));
  auto low = static_cast<size_t>(at);
  if (low + 1 >= table.size()) return table.back();
  double part = at - static_cast<double>(low);
  return table[low] * (1 - part) + table[low + 1] * part;
}

// Linear between the points, constant outside.
double Along(std::span<const ByRanks> points, double x) {
  if (x <= points.front().ranks) return points.front().value;
  for (size_t i = 1; i < points.size(); ++i) {
    const ByRanks& a = points[i - 1];
    const ByRanks& b = points[i];
    if (x <= b.ranks) return a.value + (b.value - a.value) * (x - a.ranks) / (b.ranks - a.ranks);
  }
  return points.back().value;
}

// One evaluation of the model. Results are in microseconds.
class Nccl {
 public:
  Nccl(CollectiveKind kind, Bytes bytes, const GroupShape& group, const NcclTopology& topology)
      : t_(topology),
        reduces_all_(kind == CollectiveKind::kAllReduce),
        bytes_(bytes.value),
        nodes_(group.nodes),
        per_node_(group.most_per_node),
        ranks_(group.ranks),
        architecture_(static_cast<size_t>(topology.architecture)),
        scale_(nodes_ <= 1   ? 0
               : nodes_ == 2 ? 1
                             : 2),
        node_rate_(topology.node_gb_per_s / Channels()),
        net_rate_(topology.network_gb_per_s / Channels()) {}

  double AllToAll() const {
    if (Switched() && nodes_ == 1)
      return After(kAllToAllNodeLatency, kAllToAllNodeRate[architecture_]);
    double n = Ranks();
    if (t_.nvswitch && nodes_ > 1) {
      double remote = (n - static_cast<double>(per_node_)) / n;
      double rate = t_.network_gb_per_s * (1 - kAllToAllLoss / static_cast<double>(nodes_));
      auto size = static_cast<size_t>(WholeLog2((bytes_ / ranks_) >> 6));
      double share = size < std::size(kAllToAllShare) ? kAllToAllShare[size] : 1;
      int depth = WholeLog2(nodes_);
      if (depth > 1 && share < 1) share = 1 - (1 - share) / depth;
      return Along(kAllToAllLatency, static_cast<double>(nodes_)) +
             static_cast<double>(bytes_) * remote / (1000 * rate * share);
    }
    double steps = static_cast<double>(nodes_ - 1);
    double latency =
        kRingBase[kSimple] + (n - steps) * NodeStep(kSimple) + steps * NetStep(kSimple);
    return After(latency, Channels() * (nodes_ <= 2 ? node_rate_ : net_rate_) * kAllToAllRingShare);
  }

  double Other() const {
    if (Switched() && nodes_ == 1) return InNode();
    if (Switched() && HasTable()) {
      if (!reduces_all_) return TableRing();
      return std::min(TableTree(), Best([this](int p) { return Ring(p); }));
    }
    double best = Best([this](int p) { return Ring(p); });
    if (reduces_all_) best = std::min(best, Best([this](int p) { return Tree(p); }));
    if (Switched()) best = std::min(best, Switch());
    if (Switched() && reduces_all_ && nodes_ > 1) best = std::min(best, SwitchTree());
    return best;
  }

 private:
  bool Switched() const {
    return t_.nvswitch && t_.architecture != NcclTopology::Architecture::kAmpere;
  }
  double Channels() const { return static_cast<double>(t_.channels); }
  double Ranks() const { return static_cast<double>(ranks_); }
  double Steps() const { return static_cast<double>((reduces_all_ ? 2 : 1) * (ranks_ - 1)); }
  // The tables are for Hopper; Blackwell's links are twice as fast.
  double TableScale() const {
    return t_.architecture == NcclTopology::Architecture::kBlackwell ? 2 : 1;
  }
  double After(double latency, double rate) const {
    return rate > 0 ? latency + static_cast<double>(bytes_) / (1000 * rate) : kNever;
  }
  template <typename Time>
  static double Best(Time time) {
    return std::min({time(kLL), time(kLL128), time(kSimple)});
  }

  double InNode() const {
    double latency = Along(reduces_all_ ? kReduceLatency : kGatherLatency, Ranks());
    double rate = Along(reduces_all_ ? kReduceRate : kGatherRate, Ranks());
    return After(latency, rate * TableScale());
  }

  // Tables exist for 2 to 32 nodes and 1 to 8 ranks on each, in powers of two.
  bool HasTable() const {
    auto power = [](int64_t n, int64_t least, int64_t most) {
      return n >= least && n <= most && std::has_single_bit(static_cast<uint64_t>(n));
    };
    return power(nodes_, 2, 32) && power(per_node_, 1, 8) && nodes_ * per_node_ == ranks_;
  }
  auto& Row(const auto& table) const { return table[WholeLog2(nodes_) - 1][WholeLog2(per_node_)]; }

  double TableRing() const {
    double share = 1;
    int64_t each = bytes_ / ranks_;
    bool fitted = static_cast<size_t>(WholeLog2(each >> 6)) < std::size(kFullNodesShare);
    if (per_node_ == t_.devices_per_node && fitted) share = Between(kFullNodesShare, each);
    return Best([&](int p) {
      const LatencyAndRate& entry = Row(kRingTable)[p];
      return After(entry.latency, entry.rate * TableScale() * share);
    });
  }

  double TableTree() const {
    double best = Best([&](int p) {
      const LatencyAndRate& entry = Row(kTreeTable)[p];
      return After(entry.latency, entry.rate * TableScale() * TreeShare(p));
    });
    if (per_node_ < 4) return best;
    const LatencyAndRate& entry = kSwitchTreeTable[WholeLog2(nodes_) - 1][per_node_ == 8];
    double share = Between(kSwitchTreeShare, bytes_ / ranks_);
    return std::min(best, After(entry.latency, entry.rate * TableScale() * share));
  }

  double TreeShare(int p) const {
    int size = WholeLog2(bytes_ >> 6);
    return size < 23 ? kTreeShare[p][size] : 1;
  }

  // The rate of the network links that a node's ranks use together through a switch.
  double JoinedNetRate() const {
    if (!t_.nvswitch || nodes_ <= 1) return net_rate_;
    return std::min(node_rate_, net_rate_ * static_cast<double>(per_node_));
  }
  double LinkRate() const { return Channels() * (nodes_ <= 2 ? node_rate_ : JoinedNetRate()); }
  double NodeStep(int p) const {
    return std::max(kRingNodeStep[p], nodes_ > 1 ? kNetOverhead[p] : 0);
  }
  double NetStep(int p) const { return per_node_ == 1 ? kTreeNetStep[p] : kRingNetStep[p]; }

  double Ring(int p) const {
    double rate = LinkRate();
    if (p == kLL) rate = std::min(kLLMost[architecture_][scale_], rate * 0.5);
    if (p == kLL128) rate = std::min(rate * 0.92, Channels() * kRingLL128Most[architecture_]);
    rate *= Ranks() / Steps();
    double over_net = static_cast<double>((reduces_all_ ? 2 : 1) * (nodes_ - 1));
    double latency = kRingBase[p] + (Steps() - over_net) * NodeStep(p) + over_net * NetStep(p);
    if (nodes_ > 1) {
      double nodes = static_cast<double>(nodes_);
      latency += kSyncPerNode * nodes * (nodes_ > 4 ? Pow(nodes / 4, 0.65) : 1);
      rate *= RingShare();
      bool level = static_cast<double>(bytes_) / (Channels() * Ranks()) >= 64;
      if (p == kSimple && reduces_all_ && level) latency *= 1.4;
    }
    return After(latency, rate);
  }

  // Long rings fill more slowly: the shares are raised to a power, and at most double between
  // entries.
  double RingShare() const {
    constexpr size_t kSizes = std::size(kRingShare);
    double share[kSizes];
    double power = nodes_ > 4 ? 1 + 0.2 * (WholeLog2(nodes_) - 2) : 1;
    for (size_t i = 0; i < kSizes; ++i) {
      share[i] = kRingShare[i] < 1 && power != 1 ? Pow(kRingShare[i], power) : kRingShare[i];
      if (i > 0 && nodes_ > 4) share[i] = std::min(share[i], 2 * share[i - 1]);
    }
    return Between(share, bytes_ / ranks_);
  }

  double Tree(int p) const {
    double rate = std::min(LinkRate() * 0.92, Channels() * kTreeMost[architecture_][scale_]);
    if (p == kLL) rate = std::min(rate / 3.8, kLLMost[architecture_][scale_]);
    if (p == kLL128) {
      rate = std::min(rate * (nodes_ == 1 ? 7.0 / 9 : 120.0 / 128),
                      Channels() * kTreeLL128Most[architecture_][scale_]);
    }
    double latency =
        kTreeBase[p] + 2 * (static_cast<double>(ranks_ / nodes_ - 1) * kTreeNodeStep[p] +
                            WholeLog2(nodes_) * kTreeNetStep[p]);
    return After(latency, rate * 0.5 * TreeShare(p));
  }

  // The rate at which a switch reduces and multicasts within a node.
  double SwitchRate() const {
    return node_rate_ * kSwitchEfficiency[architecture_] * (Channels() - 1) / Channels();
  }

  double Switch() const {
    if (t_.channels < 2 || (!reduces_all_ && nodes_ > 1)) return kNever;
    double per_node = static_cast<double>(per_node_);
    double rate = SwitchRate() * (reduces_all_ ? 2 : (per_node - 1) / per_node);
    if (nodes_ > 1) rate = std::min(rate, net_rate_);
    rate *= Channels() * (reduces_all_ ? Ranks() / Steps() : 1);
    return After(kSwitchNodeStep + (nodes_ > 1 ? SwitchNetStep(kSwitchNetStep) : 0), rate);
  }

  double SwitchTree() const {
    if (t_.channels < 2) return kNever;
    double rate = std::min({SwitchRate() * 2, JoinedNetRate() * (nodes_ <= 2 ? 2 : 1),
                            kSwitchTreeMost[architecture_][scale_]});
    rate *= Channels() * Ranks() / Steps();
    if (t_.architecture == NcclTopology::Architecture::kBlackwell) {
      int size = WholeLog2(bytes_ >> 6);
      if (size < 24) rate *= kTreeShare[kSimple][size];
    }
    return After(kSwitchNodeStep + 2 * WholeLog2(nodes_) * SwitchNetStep(kSwitchTreeNetStep), rate);
  }
  double SwitchNetStep(double usual) const {
    return per_node_ == 1 ? kTreeNetStep[kSimple] : usual;
  }

  const NcclTopology& t_;
  bool reduces_all_;
  int64_t bytes_;
  int64_t nodes_;
  int64_t per_node_;
  int64_t ranks_;
  size_t architecture_;
  size_t scale_;
  // One channel, in GB/s.
  double node_rate_;
  double net_rate_;
};

}  // namespace

Nanos NcclTime(CollectiveKind kind, Bytes bytes, const GroupShape& group,
               const NcclTopology& topology) {
  if (group.ranks <= 1) return {0};
  Nccl question(kind, bytes, group, topology);
  double micros = kind == CollectiveKind::kAllToAll ? question.AllToAll() : question.Other();
  return WholeNanos(micros * 1000);
}

}  // namespace heddle::price
