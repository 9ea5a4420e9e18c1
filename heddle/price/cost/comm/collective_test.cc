// Models of collectives: the reference table of the NCCL model, and properties of the native model.
#include <gtest/gtest.h>

#include "heddle/price/cost/comm/native_model.h"
#include "heddle/price/cost/comm/nccl_model.h"

namespace heddle::price {
namespace {

// A group of `nodes` nodes with `per_node` ranks on each.
GroupShape EvenGroup(int64_t nodes, int64_t per_node) {
  return {nodes * per_node, nodes, per_node, per_node};
}

constexpr CollectiveKind kGather = CollectiveKind::kAllGather;
constexpr CollectiveKind kScatter = CollectiveKind::kReduceScatter;
constexpr CollectiveKind kReduce = CollectiveKind::kAllReduce;
constexpr CollectiveKind kAllToAll = CollectiveKind::kAllToAll;

struct Row {
  const char* cluster;
  int64_t nodes;
  int64_t per_node;
  // Microseconds at 1, 16, 256 and 1024 MiB: all-gather and reduce-scatter, all-reduce, all-to-all.
  double micros[4][3];
};
// Results of AutoParallel's model of NCCL 2.27.
constexpr Row kTable[] = {
    {"h100-8x",
     8,
     1,
     {{86.60, 164.30, 83.97},
      {405.72, 1124.17, 382.51},
      {4995.93, 9764.00, 5031.03},
      {19664.54, 37949.72, 19944.11}}},
    {"h100-8x",
     1,
     8,
     {{32.66, 34.93, 52.76},
      {72.58, 93.84, 94.15},
      {711.31, 1036.38, 756.41},
      {2755.23, 4052.50, 2875.64}}},
    {"h100-8x",
     8,
     8,
     {{153.57, 100.22, 85.55},
      {231.11, 271.56, 415.75},
      {1308.74, 1786.72, 5167.22},
      {3780.95, 6819.89, 19944.11}}},
    {"h100-8x",
     16,
     1,
     {{129.70, 181.30, 122.14},
      {497.70, 1141.17, 436.71},
      {5461.28, 12001.81, 5273.49},
      {21189.92, 41124.31, 20799.96}}},
    {"h100-8x",
     16,
     8,
     {{296.64, 117.22, 118.22},
      {370.18, 288.56, 475.22},
      {1619.25, 2043.50, 5419.84},
      {4679.39, 6847.89, 21062.01}}},
    {"h100-8x",
     32,
     1,
     {{211.30, 198.30, 314.06},
      {645.42, 1158.17, 639.88},
      {5865.34, 15351.01, 5616.71},
      {22134.15, 43648.01, 21383.79}}},
    {"h100-8x",
     32,
     8,
     {{518.90, 134.22, 310.60},
      {647.29, 305.56, 668.84},
      {1902.67, 2495.17, 5760.38},
      {5300.06, 6875.89, 21726.78}}},
    {"a100-8x",
     8,
     1,
     {{747.06, 227.10, 169.72},
      {1187.70, 1794.05, 1068.50},
      {9560.64, 19159.24, 15448.97},
      {37746.36, 75530.69, 61466.48}}},
    {"a100-8x",
     1,
     8,
     {{31.72, 56.85, 52.68},
      {199.59, 390.78, 308.89},
      {2710.43, 5412.47, 4408.23},
      {10745.13, 21481.86, 17526.10}}},
    // Seventy-two devices per node.
    {"b200-8x",
     1,
     72,
     {{31.33, 32.96, 51.55},
      {51.29, 62.42, 74.86},
      {370.65, 533.69, 447.68},
      {1392.62, 2041.75, 1640.73}}},
};

TEST(Nccl, GivesTheReferenceTable) {
  constexpr int64_t kMiB[] = {1, 16, 256, 1024};
  for (const Row& row : kTable) {
    NcclTopology topology = *LoadCluster(row.cluster)->nccl;
    if (row.per_node > 8) topology.devices_per_node = row.per_node;
    for (size_t i = 0; i < 4; ++i) {
      auto micros = [&](CollectiveKind kind) {
        Nanos time = NcclTime(kind, MiB(kMiB[i]), EvenGroup(row.nodes, row.per_node), topology);
        return static_cast<double>(time.value) / 1000;
      };
      std::string where =
          fmt::format("{} {}x{} {} MiB", row.cluster, row.nodes, row.per_node, kMiB[i]);
      EXPECT_NEAR(micros(kGather), row.micros[i][0], 0.01) << where;
      EXPECT_NEAR(micros(kScatter), row.micros[i][0], 0.01) << where;
      EXPECT_NEAR(micros(kReduce), row.micros[i][1], 0.01) << where;
      EXPECT_NEAR(micros(kAllToAll), row.micros[i][2], 0.01) << where;
    }
  }
}

// The minimum time that the links allow, computed independently.
double WireNanos(CollectiveKind kind, double bytes, double nodes, double per_node,
                 const Cluster& cluster) {
  double n = nodes * per_node;
  double port = cluster.network_rate.per_nano;
  double link = cluster.node_rate.per_nano;
  if (kind == kAllToAll)
    return std::max(bytes * (n - per_node) / n / port, bytes * (per_node - 1) / n / link);
  double enters_node = bytes * (nodes - 1) / nodes;
  double enters_device = bytes * (n - 1) / n;
  double own_port = enters_node / per_node;
  if (kind == kReduce) {
    // A switch may add and multicast: each byte enters and leaves once.
    return std::max(2 * enters_node / (port * per_node), (enters_device - own_port) / link);
  }
  return std::max(enters_node / (port * per_node), (enters_device - own_port) / link);
}

TEST(Native, HoldsForEveryGroupAndSize) {
  int64_t questions = 0;
  for (const NamedCluster& named : BuiltInClusters()) {
    Cluster cluster = *LoadCluster(std::string(named.name));
    for (int64_t nodes = 1; nodes <= 64; ++nodes) {
      for (int64_t per_node = 1; per_node <= 8; ++per_node) {
        GroupShape group = EvenGroup(nodes, per_node);
        Nanos before[4] = {};
        // Steps avoid powers of two, so that errors between samples would show.
        for (int64_t bytes = 1; bytes < (int64_t{1} << 36); bytes += bytes / 3 + 1) {
          Nanos now[4];
          for (CollectiveKind kind : {kGather, kScatter, kReduce, kAllToAll}) {
            auto k = static_cast<size_t>(kind);
            now[k] = NativeTime(kind, {bytes}, group, cluster);
            double wire = WireNanos(kind, static_cast<double>(bytes), static_cast<double>(nodes),
                                    static_cast<double>(per_node), cluster);
            ASSERT_GE(now[k], before[k]) << Name(kind) << " falls at " << bytes;
            ASSERT_GE(static_cast<double>(now[k].value), wire * (1 - 1e-12));
            before[k] = now[k];
            ++questions;
          }
          ASSERT_GE(now[2], now[0]) << named.name << " " << nodes << "x" << per_node;
          ASSERT_GE(now[2], now[1]) << named.name << " " << nodes << "x" << per_node;
        }
      }
    }
  }
  EXPECT_GT(questions, 500'000);
}

TEST(Native, MoreNodesAreNeverFasterForTheSameRanks) {
  Cluster cluster = *LoadCluster("h100-8x");
  for (CollectiveKind kind : {kGather, kScatter, kReduce, kAllToAll}) {
    for (int64_t mib : {1, 64, 1024}) {
      Nanos together = NativeTime(kind, MiB(mib), EvenGroup(1, 8), cluster);
      Nanos apart = NativeTime(kind, MiB(mib), EvenGroup(8, 1), cluster);
      EXPECT_LT(together, apart) << Name(kind) << " " << mib;
    }
  }
}

TEST(Group, StridesDecide) {
  Mesh mesh({{"dp", 8}, {"tp", 8}});
  Axes both(0);
  both.Add(1);
  EXPECT_EQ(ShapeOfGroups(mesh, Axes(0), 8), EvenGroup(8, 1));
  EXPECT_EQ(ShapeOfGroups(mesh, Axes(1), 8), EvenGroup(1, 8));
  EXPECT_EQ(ShapeOfGroups(mesh, both, 8), EvenGroup(8, 8));
  // Two tensor-parallel groups per node.
  Mesh small({{"dp", 8}, {"tp", 4}});
  EXPECT_EQ(ShapeOfGroups(small, Axes(0), 8), EvenGroup(4, 2));
  EXPECT_EQ(ShapeOfGroups(small, Axes(1), 8), EvenGroup(1, 4));
  // Groups of three on nodes of eight: ranks 6, 7 and 8 span two nodes.
  Mesh odd({{"dp", 4}, {"tp", 3}});
  GroupShape worst = ShapeOfGroups(odd, Axes(1), 8);
  EXPECT_EQ(worst.ranks, 3);
  EXPECT_EQ(worst.nodes, 2);
  EXPECT_EQ(worst.most_per_node, 3);
  EXPECT_EQ(worst.fewest_per_node, 1);
}

// Checks every group of a mesh, rank by rank.
TEST(Group, IsTheWorstOfAllGroups) {
  for (int64_t a : {1, 2, 3, 4, 6}) {
    for (int64_t b : {1, 2, 3, 5, 8, 40}) {
      for (int64_t c : {1, 2, 4}) {
        Mesh mesh({{"a", a}, {"b", b}, {"c", c}});
        for (int64_t devices : {1, 2, 4, 6, 8}) {
          for (uint32_t set = 1; set < 8; ++set) {
            Axes axes;
            for (AxisId axis = 0; axis < 3; ++axis) {
              if ((set >> axis & 1) != 0) axes.Add(axis);
            }
            GroupShape worst{mesh.Size(axes), 1, 1, mesh.Size(axes)};
            for (const std::vector<int64_t>& group : Groups(mesh, axes)) {
              std::map<int64_t, int64_t> on_node;
              for (int64_t rank : group) ++on_node[rank / devices];
              worst.nodes = std::max(worst.nodes, static_cast<int64_t>(on_node.size()));
              for (auto [node, count] : on_node) {
                worst.most_per_node = std::max(worst.most_per_node, count);
                worst.fewest_per_node = std::min(worst.fewest_per_node, count);
              }
            }
            EXPECT_EQ(ShapeOfGroups(mesh, axes, devices), worst);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::price
