// A cluster: the rates of its devices and links. All of it is data, in `price/cost/data/*.json` or
// in a user's file; docs/cost.md describes the fields.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/dtype.h"
#include "heddle/price/cost/cluster/rate.h"

namespace heddle::price {

// Efficiency of matrix products. Each core computes one tile of the result at a time:
//   time = cores * waves * 2 * rows * columns * (depth + fill) / (peak * efficiency)
// for the best tile, and for the best split of the depth among several cores, which then add their
// parts.
struct MatmulFigures {
  struct Tile {
    double rows = 0;
    double columns = 0;
    // Share of the peak rate while all cores are busy.
    double efficiency = 1;
  };
  std::vector<Tile> tiles;
  // The start and the end of a tile take as long as this many steps of depth.
  double fill = 0;
  // Share of a partly filled wave that is lost: 1 if kernels never share a wave.
  double wave_loss = 1;
  // The maximum number of parts of the depth.
  int64_t splits = 1;
};

// The same for attention. Long sequences reach the efficiency; `half` positions of keys reach half
// of it.
struct AttentionFigures {
  double efficiency = 1;
  double half = 0;
  // Queries per block of a core. Keys after the block in which a causal mask ends are not read.
  double block = 1;
  double wave_loss = 1;
  // Heads of 64 take this share longer for the same arithmetic than heads of 128 or more, because
  // the softmax of a key costs the same.
  double narrow = 0;
};

// A kernel that only moves bytes, and its share of the streaming rate. A core takes `block_time`
// for a block of elements, so a few blocks take at least that long.
struct MemoryFigures {
  double share = 1;
  double block = 0;
  Nanos block_time;
  // Rows of this many elements reach half of that rate. 0: rows of any length reach it.
  double half_row = 0;
  // Share of that rate if an operand is a view whose elements are not neighbours.
  double strided = 1;
  // Elements that an op adds to places given by indices in a nanosecond; 0: it adds none. Each
  // addition is an atomic read and write.
  double adds_per_nano = 0;
};

// The device whose kernels a step runs.
enum class DeviceType : uint8_t { kCuda, kCpu };
std::string_view Name(DeviceType type);

// What runs a step: Heddle, eager PyTorch, or torch.compile.
enum class Execution : uint8_t { kHeddle, kEager, kCompiled };
inline constexpr size_t kExecutionCount = 3;
// `heddle`, `eager`, `compiled`
std::string_view Name(Execution execution);

// How an execution differs from one kernel per op, launched without delay.
struct ExecutionFigures {
  // Neighbouring ops on elements and rows run as one kernel.
  bool fuse = false;
  // Values inside a kernel need no memory.
  bool inside = false;
  // Share of the streaming rate that kernels on elements and rows reach, in addition to their own
  // figures; and that of fused kernels.
  double memory = 1;
  double fused_memory = 1;
  // Time the host needs for a launch. It overlaps with the device.
  Nanos dispatch;
  // Device memory beyond the values of the graph: a fixed amount, and a share of the peak that the
  // caching allocator loses.
  Bytes fixed;
  double fragmentation = 0;
  // Measured steps took from 1 - below to 1 + above of the predicted time. None: not compared.
  struct Range {
    double below = 0;
    double above = 0;
  };
  std::optional<Range> range = {};
};

// One device of a cluster.
struct Device {
  DeviceType type = DeviceType::kCuda;
  // Names that drivers report.
  std::vector<std::string> names;
  Bytes memory;
  ByteRate bandwidth;
  // Share of the rate that streaming kernels reach.
  double memory_efficiency = 1;
  // Share of the lower of two roofs that is added to the higher one.
  double roof_overlap = 0;
  // Processors that work on tiles independently: multiprocessors of a GPU.
  int64_t cores = 1;
  // Dense matrix products by element type; 0 if the device does not support it.
  std::array<FlopRate, kDTypeCount> peak{};
  // All other arithmetic.
  FlopRate vector_peak;
  // From the end of a kernel to the start of the next one's work.
  Nanos launch;
  // The minimum time of a kernel, without its launch.
  Nanos shortest;
  // Slowdown of compute while a collective is in flight: 0.1 is 10 %.
  double overlap_slowdown = 0;
  // Share of the rate of single products and attention kernels that the power limit sustains.
  double sustained = 1;
  // Slowdown of compute for each doubling of nodes: ranks wait for the slowest one.
  double straggler = 0;
  // Indexed by Execution.
  std::array<ExecutionFigures, kExecutionCount> executions{};

  MatmulFigures matmul;
  // By op name, and for all others.
  std::map<std::string, AttentionFigures, std::less<>> attention;
  AttentionFigures any_attention;
  // By op name; all others stream at the full rate. A copy to a wider type is
  // `aten._to_copy.wider`.
  std::map<std::string, MemoryFigures, std::less<>> memory_kernels;

  // The peak rate of products of this type, or of other arithmetic if there is none.
  FlopRate PeakOf(DType dtype) const {
    FlopRate rate = peak[static_cast<size_t>(dtype)];
    return rate.per_nano > 0 ? rate : vector_peak;
  }
  const ExecutionFigures& Under(Execution execution) const {
    return executions[static_cast<size_t>(execution)];
  }
};

// A way to send, like NCCL's LL, LL128 and Simple. Each collective uses the fastest for its size.
struct Protocol {
  struct OverLink {
    // Time of each step to the next rank.
    double step_nanos = 0;
    // Share of the link's rate.
    double efficiency = 1;
    // The maximum rate of all ranks of a node together.
    ByteRate most{1e18};
  };
  std::string name;
  double base_nanos = 0;
  OverLink node;
  OverLink network;
};

// Inputs of the NCCL 2.27 model.
struct NcclTopology {
  enum class Architecture : uint8_t { kAmpere, kHopper, kBlackwell };
  Architecture architecture = Architecture::kHopper;
  int64_t devices_per_node = 8;
  // Rate of one device over all channels.
  double node_gb_per_s = 0;
  double network_gb_per_s = 0;
  int64_t channels = 16;
  // Devices of a node are connected by a switch that takes part in reductions.
  bool nvswitch = false;
};

// The link between a device and host memory, in one direction.
struct HostLink {
  ByteRate rate;
  double nanos = 0;
};

// A cluster of equal nodes.
struct Cluster {
  std::string name;
  std::string about;
  int64_t devices_per_node = 1;
  // None: any number.
  std::optional<int64_t> nodes;
  Device device;

  // Rate of one device to the others of its node, in one direction.
  ByteRate node_rate;
  // How often the bytes of an all-reduce cross the links of a node: twice in a ring, less with a
  // switch that adds.
  double all_reduce_passes = 2;
  // Rate of one device to other nodes, in one direction, while all devices of its node send over
  // shared ports.
  ByteRate network_rate;
  // None: nothing can be offloaded.
  std::optional<HostLink> host;
  std::vector<Protocol> protocols;
  std::optional<NcclTopology> nccl;
};

// Whether the text is a path: it contains a `/` or ends in `.json`.
bool IsClusterPath(std::string_view name_or_path);
// A built-in cluster by name, or the cluster in the file at a path.
Result<Cluster> LoadCluster(const std::string& name_or_path);
// The built-in cluster whose devices drivers report by this name.
std::optional<Cluster> ClusterOfDevice(std::string_view name);
// Parses a cluster file. `file` is for messages.
Result<Cluster> ParseCluster(std::string_view text, const std::string& file);

// A built-in cluster and its JSON text.
struct NamedCluster {
  std::string_view name;
  std::string_view text;
};
// The built-in clusters.
std::span<const NamedCluster> BuiltInClusters();

}  // namespace heddle::price
