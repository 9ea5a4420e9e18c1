// A cluster: what its devices can do and how they are joined. All of it is data, in `cost/data/*.json` or in a file of the
// user's; docs/cost.md describes the fields.
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

// How near to its peak a device gets with a matrix product. A kernel works on one tile of the result on each core at a time:
//   time = cores * waves * 2 * rows * columns * (depth + fill) / (peak * efficiency)
// for the best of the tiles, and of splitting the depth among several cores, which then add up their parts.
struct MatmulFigures {
  struct Tile {
    double rows = 0;
    double columns = 0;
    // Of the peak rate, while all cores are busy.
    double efficiency = 1;
  };
  std::vector<Tile> tiles;
  // The start and the end of a tile take as long as so many steps of depth.
  double fill = 0;
  // What share of a wave that does not fill all cores is lost: 1 if kernels never share a wave.
  double wave_loss = 1;
  // The most parts that the depth is split into.
  int64_t splits = 1;
};

// The same for attention. The efficiency is reached by long sequences, and half of it at `half` positions of keys.
struct AttentionFigures {
  double efficiency = 1;
  double half = 0;
  // Queries that a core works on at a time. Keys beyond the block that a causal mask ends in are not read.
  double block = 1;
  double wave_loss = 1;
};

// A kernel that only moves bytes, and what it reaches of the rate of kernels that stream. A core takes `block_time` for a block of
// elements, so that few blocks take no less.
struct MemoryFigures {
  double share = 1;
  double block = 0;
  Nanos block_time;
};

// Whose kernels a step on a cluster runs.
enum class DeviceType : uint8_t { kCuda, kCpu };
std::string_view Name(DeviceType type);

struct Device {
  DeviceType type = DeviceType::kCuda;
  // What drivers call it.
  std::vector<std::string> names;
  Bytes memory;
  ByteRate bandwidth;
  // What streaming kernels reach of it.
  double memory_efficiency = 1;
  // Of roofs that a kernel stands under, the lower one shows by so much through the higher.
  double roof_overlap = 0;
  // Processors that work on tiles on their own: multiprocessors of a GPU.
  int64_t cores = 1;
  // Dense matrix products by element type; 0 where the device has none.
  std::array<FlopRate, kDTypeCount> peak{};
  // Everything else.
  FlopRate vector_peak;
  // From the end of a kernel to the start of the next one's work.
  Nanos launch;
  // No kernel is shorter, its launch aside.
  Nanos shortest;
  // How much longer compute takes while a collective is under way: 0.1 for a tenth.
  double overlap_slowdown = 0;

  MatmulFigures matmul;
  // By name of the op, and for all others.
  std::map<std::string, AttentionFigures, std::less<>> attention;
  AttentionFigures any_attention;
  // By name of the op; all others stream at the full rate. A copy to a wider type is `aten._to_copy.wider`.
  std::map<std::string, MemoryFigures, std::less<>> memory_kernels;

  FlopRate PeakOf(DType dtype) const {
    FlopRate rate = peak[static_cast<size_t>(dtype)];
    return rate.per_nano > 0 ? rate : vector_peak;
  }
};

// Ways to send, as NCCL has LL, LL128 and Simple: each collective takes the fastest for its size.
struct Protocol {
  struct OverLink {
    // For each step to the next rank.
    double step_nanos = 0;
    // Of the link's rate.
    double efficiency = 1;
    // And never more than this for all ranks of a node together.
    ByteRate most{1e18};
  };
  std::string name;
  double base_nanos = 0;
  OverLink node;
  OverLink network;
};

// What the model of NCCL 2.27 goes by.
struct NcclTopology {
  enum class Architecture : uint8_t { kAmpere, kHopper, kBlackwell };
  Architecture architecture = Architecture::kHopper;
  int64_t devices_per_node = 8;
  // Of one device, over all channels.
  double node_gb_per_s = 0;
  double network_gb_per_s = 0;
  int64_t channels = 16;
  // Devices of a node are joined by a switch that takes part in reductions.
  bool nvswitch = false;
};

// A device to host memory, in one direction.
struct HostLink {
  ByteRate rate;
  double nanos = 0;
};

struct Cluster {
  std::string name;
  std::string about;
  int64_t devices_per_node = 1;
  // None: as many as are asked for.
  std::optional<int64_t> nodes;
  Device device;

  // One device to the others of its node, in one direction.
  ByteRate node_rate;
  // How often the bytes of an all-reduce cross the links of a node: twice in a ring, less where a switch adds.
  double all_reduce_passes = 2;
  // One device to other nodes, in one direction, while all devices of its node send: ports are shared.
  ByteRate network_rate;
  // None: what is on a device stays there.
  std::optional<HostLink> host;
  std::vector<Protocol> protocols;
  std::optional<NcclTopology> nccl;
};

// Names of clusters that have a `/` or end in `.json` are paths of files.
bool IsClusterPath(std::string_view name_or_path);
// A cluster of the binary by its name, or of the file at a path.
Result<Cluster> LoadCluster(const std::string& name_or_path);
// The one of the binary whose devices drivers call so.
std::optional<Cluster> ClusterOfDevice(std::string_view name);
Result<Cluster> ParseCluster(std::string_view text, const std::string& file);

struct NamedCluster {
  std::string_view name;
  std::string_view text;
};
// Those that the binary carries, by name.
std::span<const NamedCluster> BuiltInClusters();

}  // namespace heddle::price
