#include "heddle/price/cost/kernel_time.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "heddle/core/ir/positions.h"

namespace heddle::price {
namespace {

// Parts of a split product are accumulated in f32.
constexpr double kPartBytes = 4;

double StreamNanos(const Device& device, double bytes) {
  return bytes / (device.bandwidth.per_nano * device.memory_efficiency);
}

// The number of waves of `blocks` on all cores. The last wave does not fill them.
double Waves(double blocks, int64_t cores, double loss) {
  double waves = blocks / static_cast<double>(cores);
  return waves + loss * (std::ceil(waves) - waves);
}

double MatmulNanos(const Device& device, const ProductShape& shape, FlopRate peak) {
  const MatmulFigures& figures = device.matmul;
  auto cores = static_cast<double>(device.cores);
  double best = std::numeric_limits<double>::infinity();
  for (const MatmulFigures::Tile& tile : figures.tiles) {
    double blocks =
        shape.batch * std::ceil(shape.rows / tile.rows) * std::ceil(shape.columns / tile.columns);
    for (int64_t parts = 1; parts <= figures.splits; parts *= 2) {
      auto split = static_cast<double>(parts);
      double depth = std::ceil(shape.depth / split) + figures.fill;
      double time = cores * Waves(blocks * split, device.cores, figures.wave_loss) * 2 * tile.rows *
                    tile.columns * depth / (peak.per_nano * tile.efficiency);
      // Every part is written and then read.
      double elements = shape.batch * shape.rows * shape.columns;
      if (parts > 1) time += StreamNanos(device, 2 * split * elements * kPartBytes);
      best = std::min(best, time);
    }
  }
  return best;
}

// The operand that the schema names `name`, or null.
const Type* OperandCalled(const OpArgs& args, std::string_view name) {
  size_t at = 0;
  for (const Arg& arg : args.op().schema.args) {
    if (!IsOperand(arg.kind)) continue;
    if (arg.name == name && at < args.size() && !args[at].is_none()) return &args[at];
    ++at;
  }
  return nullptr;
}

double AttentionNanos(const Device& device, const OpArgs& args, Flops flops) {
  bool part = args.op().schema.Find("over") != nullptr;
  auto named = device.attention.find(AttentionKernel(args.op()));
  const AttentionFigures& figures =
      named != device.attention.end() ? named->second : device.any_attention;
  const Type* query = OperandCalled(args, "query");
  const Type* key = OperandCalled(args, "key");
  FlopRate peak = device.PeakOf(query != nullptr ? query->dtype : args.dtype(0));
  double time = InNanos(flops, peak) / figures.efficiency;
  if (query == nullptr || key == nullptr || query->rank() != 4 || key->rank() != 4) return time;
  auto cores = static_cast<double>(device.cores);
  auto size = [&](const Type& type, size_t dim) {
    return static_cast<double>(std::max<int64_t>(1, args.symbols().Bound(type.dims[dim])));
  };
  double keys = size(*key, 2);
  // The documents of a batch are unknown here, so their attention has the price of one document.
  bool causal = args.op().schema.Find("is_causal") != nullptr
                    ? args.Bool("is_causal")
                    : OperandCalled(args, "positions") != nullptr;
  double mean = causal ? std::min(keys, (keys + figures.block) / 2) : keys;
  if (part) {
    // In head-tail order, all ranks have the mean of all queries. Otherwise the slowest rank has
    // the last ones, and a step takes as long as it does.
    // In a ring, only the first step has a causal mask. In the others, some rank sees all keys, or
    // all ranks see half of the pairs.
    bool even = IsHeadTail(args.AxesOf("over"), args.mesh());
    if (args.IsNone("step")) {
      mean = even ? (keys + figures.block) / 2 : keys - (size(*query, 2) - figures.block) / 2;
    } else {
      mean = args.Int("step") == 0 ? (keys + figures.block) / 2 : even ? keys / 2 : keys;
    }
    mean = std::min(keys, mean);
  }
  double blocks = size(*query, 0) * size(*query, 1) * std::ceil(size(*query, 2) / figures.block);
  // Keys that one core processes: the average if the cores share the work evenly, but at least the
  // longest block, which cannot be divided.
  double shared = blocks * (mean + figures.half) / cores;
  double longest = keys + figures.half;
  // The products of heads of 128 or more overlap with the softmax.
  constexpr double kWideHead = 128;
  double wider = std::max(0.0, kWideHead / size(*query, 3) - 1);
  double unit = time / (blocks * keys) * cores * (1 + figures.narrow * wider);
  return unit * (std::max(shared, longest) + figures.wave_loss * std::min(shared, longest));
}

Nanos UnderRoof(const Device& device, double arithmetic, Bytes bytes, double share = 1) {
  double memory = StreamNanos(device, static_cast<double>(bytes.value)) / share;
  double time = std::max(arithmetic, memory) + device.roof_overlap * std::min(arithmetic, memory);
  return std::max(device.shortest, WholeNanos(time)) + device.launch;
}

bool Has(const TensorFactors& tensor, FactorId id) {
  return std::ranges::any_of(
      tensor, [&](const DimFactors& dim) { return std::ranges::find(dim, id) != dim.end(); });
}

}  // namespace

std::optional<ProductShape> ShapeOfProduct(const OpArgs& args, const Types& results) {
  Result<Factors> factors = InferFactors(args, results);
  if (!factors.ok() || results.size() != 1) return std::nullopt;
  // Find the two tensors with a loop that the result lacks.
  const TensorFactors& out = factors->results[0];
  std::vector<const TensorFactors*> sides;
  for (FactorId id = 0; id < factors->factors.size() && sides.size() < 2; ++id) {
    if (Has(out, id)) continue;
    sides.clear();
    for (const TensorFactors& operand : factors->operands) {
      // The list of group ends is not a factor of the product.
      if (operand.size() >= 2 && Has(operand, id)) sides.push_back(&operand);
    }
  }
  if (sides.size() != 2) return std::nullopt;
  ProductShape shape;
  double groups = 1;
  for (FactorId id = 0; id < factors->factors.size(); ++id) {
    auto size =
        static_cast<double>(std::max<int64_t>(1, args.symbols().Bound(factors->factors[id].size)));
    bool left = Has(*sides[0], id);
    bool right = Has(*sides[1], id);
    bool kept = Has(out, id);
    if (left && right) {
      (kept ? shape.batch : shape.depth) *= size;
    } else if (left && kept) {
      shape.rows *= size;
    } else if (right && kept) {
      shape.columns *= size;
    } else {
      // Groups of rows, columns or depth, each of which is a separate product.
      groups *= size;
    }
  }
  shape.batch *= groups;
  bool deep = results[0].rank() > 2 && args[0].rank() == 2;
  (deep ? shape.depth : args[0].rank() == 2 ? shape.rows : shape.columns) /= groups;
  return shape;
}

std::string_view AttentionKernel(const Op& op) {
  bool flash = op.schema.Find("over") != nullptr || op.schema.Find("positions") != nullptr;
  if (!flash) return op.name();
  return op.name().ends_with("_backward") ? "aten._scaled_dot_product_flash_attention_backward"
                                          : "aten._scaled_dot_product_flash_attention";
}

Nanos StreamTime(const Device& device, Bytes bytes) {
  if (bytes.value == 0) return {0};
  return UnderRoof(device, 0, bytes);
}

Nanos PlainTime(const Device& device, const Work& work, double share) {
  Bytes bytes = work.read + work.written;
  if (bytes.value == 0 && work.flops.value == 0) return {0};
  return UnderRoof(device, InNanos(work.flops, device.vector_peak), bytes, share);
}

namespace {
// An addend is operand 0 and may have another type than the product.
DType ProductDType(const OpArgs& args) {
  if (args.size() == 0) return DType::kNone;
  return args.dtype(args.size() > 2 && FamilyOf(args.op()) == OpFamily::matmul ? 1 : 0);
}
}  // namespace

namespace {
const MemoryFigures* FindMemoryFigures(const Device& device, const OpArgs& args,
                                       const Types& results) {
  std::string_view name = args.op().name();
  bool wider = name == "aten._to_copy" && ItemSize(results[0].dtype) > ItemSize(args.dtype(0));
  auto found = device.memory_kernels.find(wider ? "aten._to_copy.wider" : name);
  return found == device.memory_kernels.end() ? nullptr : &found->second;
}

// The elements that an op adds to others.
double AddedElements(const OpArgs& args) {
  double elements = 0;
  for (std::string_view name : {"source", "src", "values", "grad_output"}) {
    const Type* type = OperandCalled(args, name);
    if (type == nullptr) continue;
    elements = 1;
    for (Dim dim : type->dims) elements *= static_cast<double>(args.symbols().Bound(dim));
  }
  return elements;
}

// Like PlainTime, for an op with its own figures.
Nanos MemoryTime(const Device& device, const OpArgs& args, const Work& work,
                 const MemoryFigures& figures, double share) {
  double elements = 0;
  double row = 1;
  for (const Type& type : args.operands()) {
    double product = type.is_none() ? 0 : 1;
    for (Dim dim : type.dims) product *= static_cast<double>(args.symbols().Bound(dim));
    elements = std::max(elements, product);
    if (product == elements && product > 0 && !type.dims.empty())
      row = static_cast<double>(args.symbols().Bound(type.dims.back()));
  }
  if (row > 0) share *= row / (row + figures.half_row);
  double least = figures.block == 0 ? 0
                                    : static_cast<double>(figures.block_time.value) *
                                          std::min(1.0, elements / figures.block);
  double arithmetic = InNanos(work.flops, device.vector_peak);
  if (figures.adds_per_nano > 0)
    arithmetic = std::max(arithmetic, AddedElements(args) / figures.adds_per_nano);
  Nanos time = UnderRoof(device, arithmetic, work.read + work.written, figures.share * share);
  return std::max(time, WholeNanos(least) + device.launch);
}
}  // namespace

Nanos IdealTime(const Device& device, const OpArgs& args, Flops flops) {
  return WholeNanos(InNanos(flops, device.PeakOf(ProductDType(args))));
}

Nanos KernelTime(const Device& device, const OpArgs& args, const Types& results, double share) {
  Work work = InferWork(args, results);
  const MemoryFigures* figures = FindMemoryFigures(device, args, results);
  if (figures != nullptr) return MemoryTime(device, args, work, *figures, share);
  if (!IsMatrixWork(args.op()) || work.flops.value == 0) return PlainTime(device, work, share);
  Bytes bytes = work.read + work.written;
  FlopRate peak = device.PeakOf(ProductDType(args));
  double arithmetic = InNanos(work.flops, peak);
  if (FamilyOf(args.op()) == OpFamily::attention) {
    arithmetic = AttentionNanos(device, args, work.flops);
  } else if (std::optional<ProductShape> shape = ShapeOfProduct(args, results)) {
    arithmetic = MatmulNanos(device, *shape, peak);
  }
  return UnderRoof(device, arithmetic / device.sustained, bytes);
}

}  // namespace heddle::price
