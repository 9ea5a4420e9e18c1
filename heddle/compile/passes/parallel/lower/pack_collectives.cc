// pack-collectives: makes every collective move one tensor along dimension 0, in equal parts.
//
//   %h! = comm.reduce_scatter(%a, %b, over=[dp], dim=[0,1], scale=0.5, why=grad)
//   %c, %d = comm.wait(%h!)                    with %a: f32[4,3], %b: f32[5,8] becomes, for 2
//   ranks,
//
//   %p  = aten.cat([%a as f32[2,6], %b as f32[2,20]], dim=1)     a row for each rank
//   %s  = aten.mul.Scalar(%p, other=0.5)
//   %h! = comm.reduce_scatter(%s, over=[dp], why=grad)
//   %u  = comm.wait(%h!)
//   %c, %d = slices of %u, reshaped
//
// The graph then needs of an executor what c10d has. Payloads are those of the runtime
// (run/runtime/ collective.h), so all reductions add the same elements in the same launches: a
// payload for each element type, tensors in operand order, parts that differ between ranks padded
// with zeros. A large tensor that is gathered along dimension 0 travels alone, because its payload
// is the result.
#include <algorithm>
#include <utility>

#include "heddle/compile/manager/pass.h"
#include "heddle/core/analysis/launch.h"
#include "heddle/core/analysis/weights.h"
#include "heddle/core/ir/edit/call_builder.h"
#include "heddle/core/ir/edit/inserter.h"
#include "heddle/core/ops/collectives.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

// Bytes per rank from which a gathered tensor travels alone, as in the runtime.
constexpr int64_t kTravelsAloneBytes = 1 << 18;

// The different sizes of a dimension on all ranks. Chunks have at most three sizes per axis: full,
// the rest, and empty.
std::vector<int64_t> DistinctSizes(const SymbolTable& symbols, const Mesh& mesh, Dim dim) {
  if (!IsSymbol(dim)) return {dim};
  std::vector<int64_t> sizes = {symbols[dim].whole};
  for (AxisId axis : symbols[dim].axes) {
    std::vector<int64_t> parts;
    int64_t ranks = mesh[axis].size;
    for (int64_t size : sizes) {
      int64_t chunk = (size + ranks - 1) / ranks;
      int64_t full = chunk == 0 ? 0 : size / chunk;
      if (full > 0) parts.push_back(chunk);
      if (full < ranks) parts.push_back(size - full * chunk);
      if (full + 1 < ranks) parts.push_back(0);
    }
    std::ranges::sort(parts);
    parts.erase(std::ranges::unique(parts).begin(), parts.end());
    sizes = std::move(parts);
  }
  return sizes;
}

// Whether the parts of `size` over axes with these sizes begin at multiples of `part`, so that
// padding is only needed after the last one.
bool PadsAtEnd(int64_t size, std::span<const int64_t> ranks, int64_t part) {
  if (ranks.empty()) return size <= part;
  int64_t inner = part;
  for (int64_t count : ranks.subspan(1)) inner *= count;
  int64_t chunk = (size + ranks[0] - 1) / ranks[0];
  if (chunk == 0) return true;
  if (size > chunk && chunk != inner) return false;
  int64_t rest = size % chunk;
  return PadsAtEnd(chunk, ranks.subspan(1), part) &&
         (rest == 0 || PadsAtEnd(rest, ranks.subspan(1), part));
}

class CollectivePacker : Inserter {
 public:
  CollectivePacker(Graph& graph, Rewriter& rewriter, PassContext& context)
      : Inserter(graph, rewriter), context_(context), wait_of_(graph.node_count()) {
    for (NodeId id : graph.nodes()) {
      if (NodeId launch = LaunchOf(graph, id)) wait_of_[launch.index()] = id;
    }
  }

  void Run() {
    size_t count = graph_.node_count();
    for (uint32_t n = 0; n < count; ++n) {
      if (CollectiveKindOf(graph_[NodeId(n)].op)) PackLaunch(NodeId(n));
    }
  }

 private:
  struct Item {
    ValueId operand;
    // The result of the wait.
    ValueId result;
    DType dtype;
    Dims operand_dims;
    Dims result_dims;
    // The part that one rank gets of another's operand, with padding.
    Dims piece;
    int64_t elements = 1;
    // The dimension that is split, and the one that is concatenated.
    size_t cut_dim = 0;
    size_t join_dim = 0;
    std::string unit;
    // Whether sizes are numbers and dimension 0 is the one that is split and concatenated.
    bool plain = false;
  };
  // A launch that is rewritten.
  struct Launch {
    NodeId node;
    NodeId wait;
    CollectiveKind kind;
    Axes over;
    int64_t ranks;
    double scale;
    std::vector<Item> items;
  };

  // Whether each rank receives a part of every rank.
  static bool JoinsParts(const Launch& launch) {
    return !Reduces(launch.kind) && launch.kind != CollectiveKind::kShift;
  }

  const SymbolTable& symbols() const { return graph_.types().symbols(); }

  void PackLaunch(NodeId node) {
    std::string reason = RefusalOf(node);
    Launch launch;
    if (reason.empty()) {
      launch = Read(node);
      if (launch.items.size() == 1 && launch.items[0].plain && launch.scale == 1.0) return;
      reason = RefusalOf(launch);
    }
    if (!reason.empty()) {
      context_.AddRemark(graph_, graph_[node].first_result, RemarkKind::kNotPacked, "{}", reason);
      return;
    }
    bool first = true;
    for (const std::vector<const Item*>& payload : PayloadsOf(launch)) {
      Rewrite(launch, payload, first);
      first = false;
    }
    rewriter_.Erase(node);
    rewriter_.Erase(launch.wait);
    context_.Count("packed");
  }

  std::string RefusalOf(NodeId node) const {
    const AttrValue* sizes = graph_.attrs(node).Find("sizes");
    if (MovesRows(graph_[node].op) ||
        (sizes != nullptr && !std::holds_alternative<std::monostate>(*sizes)))
      return "the sizes of its parts are data";
    if (!wait_of_[node.index()]) return "its wait is in another graph";
    for (ValueId value : graph_.operands(node)) {
      for (Dim dim : graph_.types().dims(graph_.type(value))) {
        if (IsSymbol(dim) && !symbols()[dim].is_chunk())
          return fmt::format("size {} is known at run time only", symbols()[dim].name);
      }
    }
    return {};
  }

  std::string RefusalOf(const Launch& launch) const {
    std::vector<int64_t> ranks;
    for (AxisId axis : launch.over) ranks.push_back(context_.mesh()[axis].size);
    auto at_end = [&](Dim dim, int64_t part) {
      return std::ranges::all_of(DistinctSizes(symbols(), context_.mesh(), dim),
                                 [&](int64_t size) { return PadsAtEnd(size, ranks, part); });
    };
    for (const Item& item : launch.items) {
      bool fits = true;
      if (CutsInput(launch.kind))
        fits &= at_end(item.operand_dims[item.cut_dim], item.piece[item.cut_dim]);
      if (JoinsParts(launch))
        fits &= at_end(item.result_dims[item.join_dim], item.piece[item.join_dim]);
      // A part of each operand for every rank, side by side: only even ones have a whole.
      if (launch.kind == CollectiveKind::kAllToAll && item.cut_dim == item.join_dim)
        fits &= !IsSymbol(item.operand_dims[item.cut_dim]) &&
                item.operand_dims[item.cut_dim] % launch.ranks == 0;
      if (!fits)
        return fmt::format("the parts of %{} need padding between them", graph_.name(item.result));
      if (launch.scale != 1.0 && IsInteger(item.dtype))
        return fmt::format("a scale of {} for {} elements", launch.scale, Name(item.dtype));
    }
    return {};
  }

  Launch Read(NodeId node) const {
    const Attrs& attrs = graph_.attrs(node);
    Launch launch{.node = node,
                  .wait = wait_of_[node.index()],
                  .kind = *CollectiveKindOf(graph_[node].op),
                  .over = std::get<Axes>(*attrs.Find("over")),
                  .ranks = 1,
                  .scale = 1.0,
                  .items = {}};
    launch.ranks = context_.mesh().Size(launch.over);
    if (const AttrValue* scale = attrs.Find("scale")) launch.scale = std::get<double>(*scale);
    for (size_t i = 0; i < graph_.operands(node).size(); ++i)
      launch.items.push_back(ReadItem(launch, i));
    return launch;
  }

  Item ReadItem(const Launch& launch, size_t i) const {
    const TypeTable& types = graph_.types();
    const Attrs& attrs = graph_.attrs(launch.node);
    Item item;
    item.operand = graph_.operands(launch.node)[i];
    item.result = graph_.results(launch.wait)[i];
    item.dtype = types.dtype(graph_.type(item.operand));
    std::span<const Dim> dims = types.dims(graph_.type(item.operand));
    item.operand_dims.assign(dims.begin(), dims.end());
    dims = types.dims(graph_.type(item.result));
    item.result_dims.assign(dims.begin(), dims.end());
    auto dim = [&](std::string_view name) {
      const AttrValue* value = attrs.Find(name);
      int64_t given = value != nullptr ? EachInt(*value, i) : 0;
      return static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(dims.size()) : given);
    };
    if (launch.kind == CollectiveKind::kAllToAll) {
      item.cut_dim = dim("split_dim");
      item.join_dim = dim("concat_dim");
    } else if (launch.kind != CollectiveKind::kAllReduce && launch.kind != CollectiveKind::kShift) {
      item.cut_dim = item.join_dim = dim("dim");
    }
    bool numbers = std::ranges::none_of(item.operand_dims, IsSymbol) &&
                   std::ranges::none_of(item.result_dims, IsSymbol);
    item.plain = numbers && item.cut_dim == 0 && item.join_dim == 0;
    for (Dim size : item.operand_dims) item.piece.push_back(symbols().Bound(size));
    if (CutsInput(launch.kind))
      item.piece[item.cut_dim] = symbols().Bound(item.result_dims[item.cut_dim]);
    if (launch.kind == CollectiveKind::kAllToAll && item.cut_dim == item.join_dim)
      item.piece[item.cut_dim] = symbols().Bound(item.operand_dims[item.cut_dim]) / launch.ranks;
    for (int64_t size : item.piece) item.elements *= size;
    item.unit = std::string(UnitOf(graph_, launch.node, i));
    return item;
  }

  std::vector<std::vector<const Item*>> PayloadsOf(const Launch& launch) const {
    std::vector<std::vector<const Item*>> payloads;
    auto alone = [&](const Item& item) {
      return launch.kind == CollectiveKind::kAllGather && item.plain && launch.scale == 1.0 &&
             item.elements * ItemSize(item.dtype) >= kTravelsAloneBytes;
    };
    for (const Item& item : launch.items) {
      auto open = std::ranges::find_if(payloads, [&](const std::vector<const Item*>& payload) {
        return !alone(item) && payload[0]->dtype == item.dtype && !alone(*payload[0]);
      });
      if (open == payloads.end()) open = payloads.insert(open, std::vector<const Item*>());
      open->push_back(&item);
    }
    return payloads;
  }

  // One launch of one tensor. `first`: it gets the name of the old one.
  void Rewrite(const Launch& launch, const std::vector<const Item*>& payload, bool first) {
    bool plain = payload.size() == 1 && payload[0]->plain;
    ValueId sent = plain ? payload[0]->operand : Pack(launch, payload);
    if (launch.scale != 1.0) {
      Attrs factor;
      factor.Set("other", launch.scale);
      sent = Add(Before(launch.node), op::mul_Scalar, "scaled", {sent}, factor, graph_.type(sent));
    }
    ValueId old_handle = graph_[launch.node].first_result;
    TypeId received = plain ? graph_.type(payload[0]->result) : RowsType(launch, payload);
    ResultSpec async{graph_.types().Async({&received, 1}), graph_.name(old_handle)};
    NodeSpec start{.op = graph_[launch.node].op,
                   .operands = {&sent, 1},
                   .attrs = graph_.InternAttrs(AttrsOf(launch, payload)),
                   .results = {&async, 1},
                   .scope = graph_[launch.node].scope,
                   .phase = graph_[launch.node].phase,
                   .stream = graph_[launch.node].stream};
    ValueId handle = graph_[rewriter_.InsertBefore(launch.node, start)].first_result;
    if (first) rewriter_.SwapNames(handle, old_handle);
    Attrs none;
    ValueId rows = Add(Before(launch.wait), op::comm_wait, "received", {handle}, none, received);
    int64_t offset = 0;
    for (const Item* item : payload) {
      ValueId value = rows;
      if (!plain) value = Unpack(launch, *item, rows, payload.size() > 1 ? offset : -1);
      offset += item->elements;
      rewriter_.SwapNames(value, item->result);
      rewriter_.ReplaceValue(item->result, value);
    }
    context_.Count("launches");
  }

  Attrs AttrsOf(const Launch& launch, const std::vector<const Item*>& payload) const {
    Attrs attrs;
    attrs.list_sizes = {1};
    for (const Attr& attr : graph_.attrs(launch.node).list) {
      if (attr.name == "dim" || attr.name == "scale" || attr.name == "unit") continue;
      bool place = attr.name == "split_dim" || attr.name == "concat_dim";
      attrs.list.push_back(place ? Attr{attr.name, int64_t{0}} : attr);
    }
    // A payload of several units belongs to none.
    bool one =
        std::ranges::all_of(payload, [&](const Item* i) { return i->unit == payload[0]->unit; });
    if (one && !payload[0]->unit.empty()) attrs.Set("unit", payload[0]->unit);
    return CanonicalAttrs(graph_.op(launch.node), attrs);
  }

  TypeId RowsType(const Launch& launch, const std::vector<const Item*>& payload) {
    int64_t total = 0;
    for (const Item* item : payload) total += item->elements;
    return TypeOf(payload[0]->dtype, {JoinsParts(launch) ? launch.ranks : 1, total});
  }
  TypeId TypeOf(DType dtype, const Dims& dims) { return graph_.types().Tensor(dtype, dims); }

  // The payload: a row for each member, or a single one if no operand is split.
  ValueId Pack(const Launch& launch, const std::vector<const Item*>& payload) {
    std::vector<ValueId> rows;
    int64_t total = 0;
    for (const Item* item : payload) {
      rows.push_back(PackItem(launch, *item));
      total += item->elements;
    }
    if (rows.size() == 1) return rows[0];
    Attrs attrs;
    attrs.list_sizes = {static_cast<uint32_t>(rows.size())};
    attrs.Set("dim", int64_t{1});
    int64_t count = CutsInput(launch.kind) ? launch.ranks : 1;
    return Add(Before(launch.node), op::cat, "payload", rows, attrs,
               TypeOf(payload[0]->dtype, {count, total}));
  }

  ValueId PackItem(const Launch& launch, const Item& item) {
    ValueId x = item.operand;
    Dims dims = item.operand_dims;
    bool cuts = CutsInput(launch.kind);
    for (size_t d = 0; d < dims.size(); ++d) {
      bool cut = cuts && d == item.cut_dim;
      x = PadTo(launch.node, x, dims, d, cut ? launch.ranks * item.piece[d] : item.piece[d]);
    }
    if (!cuts) return Reshape(launch.node, x, {1, item.elements});
    if (item.cut_dim > 0) {
      dims[item.cut_dim] = item.piece[item.cut_dim];
      dims.insert(dims.begin() + static_cast<ptrdiff_t>(item.cut_dim), launch.ranks);
      x = Reshape(launch.node, x, dims);
      std::vector<int64_t> order = {static_cast<int64_t>(item.cut_dim)};
      for (size_t d = 0; d < dims.size(); ++d) {
        if (d != item.cut_dim) order.push_back(static_cast<int64_t>(d));
      }
      x = Permute(launch.node, x, order);
    }
    return Reshape(launch.node, x, {launch.ranks, item.elements});
  }

  // Zeros after dimension `d`, up to `size`.
  ValueId PadTo(NodeId before, ValueId x, Dims& dims, size_t d, int64_t size) {
    if (dims[d] == size) return x;
    DType dtype = graph_.types().dtype(graph_.type(x));
    const Dim had = std::exchange(dims[d], size);
    Attrs attrs;
    if (!IsSymbol(had)) {
      std::vector<int64_t> pad(2 * (dims.size() - d), 0);
      pad.back() = size - had;
      attrs.Set("pad", pad);
      return Add(Before(before), op::constant_pad_nd, "padded", {x}, attrs, TypeOf(dtype, dims));
    }
    attrs.Set("size", dims);
    ValueId zeros = Add(Before(before), op::new_zeros, "zeros", {x}, attrs, TypeOf(dtype, dims));
    Attrs place;
    if (d != 0) place.Set("dim", static_cast<int64_t>(d));
    place.Set("end", had);
    return Add(Before(before), op::slice_scatter, "padded", {zeros, x}, place, TypeOf(dtype, dims));
  }

  // The item's part of the received rows, at `offset` of each; a negative one if it is all of them.
  ValueId Unpack(const Launch& launch, const Item& item, ValueId rows, int64_t offset) {
    NodeId before = launch.wait;
    ValueId x = rows;
    if (offset >= 0) {
      Attrs attrs;
      attrs.Set("dim", int64_t{1});
      attrs.Set("start", offset);
      attrs.Set("end", offset + item.elements);
      int64_t count = graph_.types().dims(graph_.type(rows))[0];
      x = Add(Before(before), op::slice_Tensor, "part", {x}, attrs,
              TypeOf(item.dtype, {count, item.elements}));
    }
    Dims dims = item.piece;
    if (JoinsParts(launch)) {
      if (item.join_dim > 0) {
        dims.insert(dims.begin(), launch.ranks);
        x = Reshape(before, x, dims);
        std::vector<int64_t> order;
        for (size_t d = 1; d <= item.join_dim; ++d) order.push_back(static_cast<int64_t>(d));
        order.push_back(0);
        for (size_t d = item.join_dim + 1; d < dims.size(); ++d)
          order.push_back(static_cast<int64_t>(d));
        x = Permute(before, x, order);
        dims = item.piece;
      }
      dims[item.join_dim] *= launch.ranks;
    }
    return Trim(before, item, Reshape(before, x, dims), dims);
  }

  // Drops the padding of every dimension.
  ValueId Trim(NodeId before, const Item& item, ValueId x, Dims dims) {
    bool in_pieces = false;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (dims[d] == item.result_dims[d]) continue;
      dims[d] = item.result_dims[d];
      Attrs attrs;
      if (d != 0) attrs.Set("dim", static_cast<int64_t>(d));
      attrs.Set("end", dims[d]);
      x = Add(Before(before), op::slice_Tensor, "part", {x}, attrs, TypeOf(item.dtype, dims));
      in_pieces |= d != 0;
    }
    if (!in_pieces) return x;
    Attrs layout;
    layout.Set("memory_format", MemoryFormat::kContiguous);
    return Add(Before(before), op::clone, "part", {x}, layout, TypeOf(item.dtype, dims));
  }

  ValueId Reshape(NodeId before, ValueId x, const Dims& dims) {
    Attrs attrs;
    attrs.Set("shape", dims);
    return Add(Before(before), op::reshape, "rows", {x}, attrs,
               TypeOf(graph_.types().dtype(graph_.type(x)), dims));
  }
  ValueId Permute(NodeId before, ValueId x, const std::vector<int64_t>& order) {
    Type type = graph_.types()[graph_.type(x)];
    Dims dims;
    for (int64_t d : order) dims.push_back(type.dims[static_cast<size_t>(d)]);
    Attrs attrs;
    attrs.Set("dims", order);
    return Add(Before(before), op::permute, "moved", {x}, attrs, TypeOf(type.dtype, dims));
  }

  PassContext& context_;
  // Indexed by launch.
  std::vector<NodeId> wait_of_;
};

Result<Changed> PackCollectives(Graph& graph, PassContext& context) {
  Rewriter rewriter(graph);
  CollectivePacker(graph, rewriter, context).Run();
  return rewriter.Commit();
}

constexpr std::string_view kPackCollectivesStats[] = {"packed", "launches"};

}  // namespace

HEDDLE_DEFINE_PASS(pack_collectives){
    .name = "pack-collectives",
    .summary = "Makes every collective move one tensor along dimension 0, in equal parts",
    .run = Run<PackCollectives>,
    .any_view = false,
    .needs = View::kLocal,
    .stats = kPackCollectivesStats,
};

}  // namespace heddle::compile
