#include <algorithm>

#include "heddle/core/base/json_fields.h"
#include "heddle/core/base/text.h"
#include "heddle/price/cost/cluster/cluster.h"

namespace heddle::price {
namespace {

constexpr double kNanosPerMicro = 1000;
// 1 TFLOP/s, in operations for each nanosecond.
constexpr double kTera = 1000;

struct RateName {
  std::string_view name;
  DType dtype;
  // An element type with the same rate.
  DType other;
};
constexpr RateName kRates[] = {
    {"f64", DType::kF64, DType::kC128},     {"f32", DType::kF32, DType::kC64},
    {"f16", DType::kF16, DType::kF16},      {"bf16", DType::kBF16, DType::kBF16},
    {"f8", DType::kF8E4M3, DType::kF8E5M2}, {"i8", DType::kI8, DType::kU8},
};

MatmulFigures ReadMatmul(JsonFields fields) {
  MatmulFigures figures;
  for (const std::vector<double>& row : fields.Rows("tiles", 3)) {
    bool good = row[0] >= 1 && row[1] >= 1 && row[2] > 0 && row[2] <= 1;
    if (!good) {
      fields.Wrong("tiles",
                   "has [{},{},{}], expected rows and columns of at least 1, and an efficiency "
                   "above 0 and at most 1",
                   row[0], row[1], row[2]);
    }
    figures.tiles.push_back({row[0], row[1], row[2]});
  }
  if (figures.tiles.empty()) fields.Wrong("tiles", "is empty");
  figures.fill = fields.NotNegative("fill");
  figures.wave_loss = fields.NotNegative("wave_loss");
  figures.splits = fields.Count("splits", 1, 64);
  fields.Finish();
  return figures;
}

AttentionFigures ReadAttention(JsonFields fields) {
  AttentionFigures figures;
  figures.efficiency = fields.Share("efficiency");
  figures.half = fields.NotNegative("half");
  figures.block = fields.Positive("block");
  figures.wave_loss = fields.NotNegative("wave_loss");
  figures.narrow = fields.NotNegative("narrow", 0);
  fields.Finish();
  return figures;
}

MemoryFigures ReadMemoryKernel(JsonFields fields) {
  MemoryFigures figures;
  figures.share = fields.Share("memory");
  figures.block = fields.NotNegative("block", 0);
  figures.block_time = WholeNanos(fields.NotNegative("block_us", 0) * kNanosPerMicro);
  figures.half_row = fields.NotNegative("half_row", 0);
  figures.strided = fields.Share("strided", 1);
  figures.adds_per_nano = fields.NotNegative("adds_per_ns", 0);
  fields.Finish();
  return figures;
}

void ReadKernels(JsonFields fields, Device& device) {
  device.matmul = ReadMatmul(fields.Object("matmul"));
  device.any_attention = ReadAttention(fields.Object("attention"));
  for (const auto& [key, value] : fields.fields()) {
    // Any other field names an op: attention, or a memory-bound kernel.
    if (!key.starts_with("aten.")) continue;
    std::string name(key);
    JsonFields kernel = fields.Object(name);
    if (kernel.Has("memory"))
      device.memory_kernels[name] = ReadMemoryKernel(kernel);
    else
      device.attention[name] = ReadAttention(kernel);
  }
  fields.Finish();
}

ExecutionFigures ReadExecution(JsonFields fields, const ExecutionFigures& usual) {
  ExecutionFigures figures = usual;
  figures.fuse = fields.Flag("fuse", usual.fuse);
  figures.inside = fields.Flag("inside", usual.inside);
  figures.memory = fields.Share("memory", 1);
  figures.fused_memory = fields.Share("fused_memory", 1);
  figures.dispatch = WholeNanos(fields.NotNegative("dispatch_us", 0) * kNanosPerMicro);
  figures.fixed = {
      static_cast<int64_t>(std::min(fields.NotNegative("fixed_gib", 0), 0x1p30) * 0x1p30)};
  figures.fragmentation = fields.NotNegative("fragmentation", 0);
  if (fields.Has("range")) {
    JsonFields range = fields.Object("range");
    figures.range = {.below = range.Share("below"), .above = range.NotNegative("above")};
    range.Finish();
  }
  fields.Finish();
  return figures;
}

// Without figures, only compiled steps have fused kernels.
void ReadExecutions(JsonFields& device_fields, Device& device) {
  device.executions[static_cast<size_t>(Execution::kCompiled)].fuse = true;
  if (!device_fields.Has("execution")) return;
  JsonFields fields = device_fields.Object("execution");
  for (Execution one : {Execution::kHeddle, Execution::kEager, Execution::kCompiled}) {
    ExecutionFigures& figures = device.executions[static_cast<size_t>(one)];
    if (fields.Has(Name(one))) figures = ReadExecution(fields.Object(Name(one)), figures);
  }
  fields.Finish();
}

Device ReadDevice(JsonFields fields) {
  constexpr std::string_view kTypes[] = {"cuda", "cpu"};
  Device device;
  device.type = static_cast<DeviceType>(fields.Choice("type", kTypes, 0));
  if (fields.Has("names")) device.names = fields.Texts("names");
  // Limited to an exbibyte, so that the bytes fit into 64 bits.
  device.memory = {static_cast<int64_t>(std::min(fields.Positive("memory_gib"), 0x1p30) * 0x1p30)};
  device.bandwidth = {fields.Positive("memory_gb_per_s")};
  device.memory_efficiency = fields.Share("memory_efficiency");
  device.roof_overlap = fields.NotNegative("roof_overlap", 0);
  device.cores = fields.Count("cores", 1, 1 << 20);
  device.vector_peak = {fields.Positive("vector_tflops") * kTera};
  device.launch = WholeNanos(fields.NotNegative("launch_us") * kNanosPerMicro);
  device.shortest = WholeNanos(fields.NotNegative("shortest_us", 0) * kNanosPerMicro);
  device.overlap_slowdown = fields.NotNegative("overlap_slowdown", 0);
  device.sustained = fields.Share("sustained", 1);
  device.straggler = fields.NotNegative("straggler", 0);
  ReadExecutions(fields, device);
  JsonFields rates = fields.Object("tflops");
  for (const RateName& rate : kRates) {
    if (!rates.Has(rate.name)) continue;
    FlopRate peak{rates.Positive(rate.name) * kTera};
    device.peak[static_cast<size_t>(rate.dtype)] = peak;
    device.peak[static_cast<size_t>(rate.other)] = peak;
  }
  rates.Finish();
  ReadKernels(fields.Object("kernels"), device);
  fields.Finish();
  return device;
}

Protocol::OverLink ReadOverLink(JsonFields fields) {
  Protocol::OverLink link;
  link.step_nanos = fields.NotNegative("step_us") * kNanosPerMicro;
  link.efficiency = fields.Share("efficiency");
  link.most = {fields.Positive("most_gb_per_s", link.most.per_nano)};
  fields.Finish();
  return link;
}

void ReadLinks(JsonFields fields, Cluster& cluster) {
  JsonFields node = fields.Object("node");
  cluster.node_rate = {node.Positive("gb_per_s")};
  cluster.all_reduce_passes = node.Positive("all_reduce_passes", 2);
  if (cluster.all_reduce_passes < 1)
    node.Wrong("all_reduce_passes", "is {}, expected at least 1", cluster.all_reduce_passes);
  node.Finish();
  JsonFields network = fields.Object("network");
  double port = network.Positive("gb_per_s");
  auto ports = static_cast<double>(network.Count("ports", 1, 1 << 20, cluster.devices_per_node));
  cluster.network_rate = {port * ports / static_cast<double>(cluster.devices_per_node)};
  network.Finish();
  if (fields.Has("host")) {
    JsonFields host = fields.Object("host");
    double rate = host.Positive("gb_per_s");
    cluster.host = {.rate = {rate}, .nanos = host.NotNegative("latency_us") * kNanosPerMicro};
    host.Finish();
  }
  fields.Finish();
}

NcclTopology ReadNccl(JsonFields fields, int64_t devices_per_node) {
  constexpr std::string_view kArchitectures[] = {"ampere", "hopper", "blackwell"};
  NcclTopology topology;
  topology.architecture =
      static_cast<NcclTopology::Architecture>(fields.Choice("architecture", kArchitectures));
  topology.devices_per_node = devices_per_node;
  topology.node_gb_per_s = fields.Positive("node_gb_per_s");
  topology.network_gb_per_s = fields.Positive("network_gb_per_s");
  topology.channels = fields.Count("channels", 1, 1024);
  topology.nvswitch = fields.Flag("nvswitch", false);
  fields.Finish();
  return topology;
}

// Sources are for readers. A key that names no field is a typing error, or left over from a removed
// field.
void CheckSources(JsonFields sources, JsonValue file, JsonMistakes& mistakes) {
  for (const auto& [key, value] : sources.fields()) {
    sources.Text(key);
    std::optional<JsonValue> at = file;
    for (std::string_view part : Split(key, '/')) {
      if (at) at = at->Find(part);
    }
    if (!at) mistakes.Add(value, "`sources` has `{}`, which is not a field of the file", key);
  }
}

}  // namespace

Result<Cluster> ParseCluster(std::string_view text, const std::string& file) {
  HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(std::string(text), file, Diag::kJson));
  JsonMistakes mistakes(document, Diag::kClusterFile);
  JsonFields fields(document.root(), mistakes);
  if (!mistakes.empty()) return mistakes.failure();
  Cluster cluster;
  constexpr std::string_view kHeader[] = {"cluster 1"};
  fields.Choice("heddle", kHeader);
  cluster.name = fields.Text("name");
  cluster.about = fields.Text("about", "");
  cluster.devices_per_node = fields.Count("devices_per_node", 1, 1 << 16);
  if (fields.Has("nodes")) cluster.nodes = fields.Count("nodes", 1, 1 << 20);
  cluster.device = ReadDevice(fields.Object("device"));
  ReadLinks(fields.Object("links"), cluster);
  for (JsonFields& one : fields.Objects("protocols")) {
    Protocol protocol;
    protocol.name = one.Text("name");
    protocol.base_nanos = one.NotNegative("base_us") * kNanosPerMicro;
    protocol.node = ReadOverLink(one.Object("node"));
    protocol.network = ReadOverLink(one.Object("network"));
    one.Finish();
    cluster.protocols.push_back(std::move(protocol));
  }
  if (cluster.protocols.empty())
    fields.Wrong("protocols", "has no protocol, expected at least one");
  if (fields.Has("nccl")) cluster.nccl = ReadNccl(fields.Object("nccl"), cluster.devices_per_node);
  if (fields.Has("sources")) CheckSources(fields.Object("sources"), document.root(), mistakes);
  fields.Finish();
  if (!mistakes.empty()) return mistakes.failure();
  return cluster;
}

}  // namespace heddle::price
