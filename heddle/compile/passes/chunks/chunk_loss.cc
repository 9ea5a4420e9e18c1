// chunk-loss: makes scores, loss and their gradients so many rows at a time, so that scores of all rows never exist at once.
//
//  fwd:                                                          fwd:
//   %s = aten.mm(%x, %w)               : f32[16,48]               %x_0 = aten.slice.Tensor(%x, dim=0, start=0, end=8)
//   %p = aten._log_softmax(%s)                                    %s_0 = aten.mm(%x_0, %w)           keep=must_recompute
//   %l, %n = aten.nll_loss_forward(%p, %labels)       becomes     %p_0 = aten._log_softmax(%s_0)     keep=must_recompute
//  bwd:                                                           %l_0, %n_0 = aten.nll_loss_forward(%p_0, %labels_0)
//   %dp = aten.nll_loss_backward(%d, %p, %labels, %n)             ... the next rows; %l = aten.add.Tensor(%l_0, %l_1)
//   %ds = aten._log_softmax_backward_data(%dp, %p)               bwd:
//   %dx = aten.mm(%ds, %wt)                                       the same so many rows at a time; rows of %dx are put together,
//                                                                 parts of gradients of weights added
//
// `rematerialize`, behind it, makes the scores again in backward: that is one more product, and what it costs. Losses and gradients of weights
// are sums of sums, in f32, and round differently.
#include <algorithm>
#include <unordered_map>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/chunks/loss_region.h"
#include "heddle/compile/passes/chunks/piece_nodes.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ops/families.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

struct ChunkLossOptions {
  int64_t rows = 1024;
};

class LossChunker {
 public:
  using Part = LossRegion::Part;

  LossChunker(Graph& graph, Rewriter& rewriter, const LossRegion& region, int64_t rows)
      : graph_(graph), rewriter_(rewriter), nodes_(graph, rewriter), region_(region), rows_(rows) {}

  // How many chunks; 0 if an operand of backward is not there in time.
  int64_t Run() {
    for (NodeId node : region_.backward()) {
      if (!BringAll(node, region_.backward().front())) return 0;
    }
    int64_t chunks = (region_.rows() + rows_ - 1) / rows_;
    chunk_of_.resize(static_cast<size_t>(chunks));
    for (const std::vector<NodeId>* nodes : {&region_.forward(), &region_.backward()}) {
      if (nodes->empty()) continue;
      bool is_forward = nodes == &region_.forward();
      anchor_ = is_forward ? nodes->back() : nodes->front();
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        AddChunk(*nodes, chunk);
        AddToSums(*nodes, chunk);
      }
      for (NodeId node : *nodes) Finish(node);
    }
    for (const std::vector<NodeId>* nodes : {&region_.forward(), &region_.backward()}) {
      for (NodeId node : *nodes) rewriter_.Erase(node);
    }
    return chunks;
  }

 private:
  // Values that stand for those of the region in one chunk, and slices of what the region is given.
  using Chunk = std::unordered_map<uint32_t, ValueId>;

  // Makes sure that what a node of backward is given exists in front of `anchor`; views and layouts of it are copied.
  bool BringAll(NodeId node, NodeId anchor) {
    return std::ranges::all_of(graph_.operands(node), [&](ValueId v) {
      return !v || region_.is_wide(v) || Bring(v, anchor);
    });
  }
  bool Bring(ValueId v, NodeId anchor) {
    NodeId producer = graph_[v].producer;
    if (!producer || brought_.contains(v.index()) || producer < anchor) return true;
    if (region_.part(producer) != Part::kNone) return true;
    bool copies = graph_.op(producer).effect() == Effect::kView || IsMove(graph_.op(producer));
    if (!copies || graph_[producer].result_count != 1) return false;
    for (ValueId operand : graph_.operands(producer)) {
      if (operand && !Bring(operand, anchor)) return false;
    }
    NodeId copy = rewriter_.CloneBefore(anchor, producer);
    for (size_t i = 0; i < graph_.operands(copy).size(); ++i) {
      auto other = brought_.find(graph_.operands(copy)[i].index());
      if (other != brought_.end()) rewriter_.SetOperand(copy, i, other->second);
    }
    brought_[v.index()] = graph_[copy].first_result;
    return true;
  }

  // A node with the name of `like`.
  ValueId Add(OpId op, ValueId like, const std::vector<ValueId>& operands, const Attrs& attrs,
              TypeId type) {
    const std::string name(graph_.name(like));
    return nodes_.Add(Inserter::Before(anchor_), op, name, operands, attrs, type);
  }

  int64_t begin(int64_t chunk) const { return chunk * rows_; }
  int64_t size(int64_t chunk) const { return std::min(rows_, region_.rows() - begin(chunk)); }

  // Rows of a value from outside, along `dim`.
  ValueId Slice(ValueId v, uint32_t dim, int64_t chunk) {
    auto brought = brought_.find(v.index());
    ValueId from = brought == brought_.end() ? v : brought->second;
    Chunk& known = chunk_of_[static_cast<size_t>(chunk)];
    uint32_t key = from.index() * 2 + dim + kSlices;
    if (auto at = known.find(key); at != known.end()) return at->second;
    const std::string name(graph_.name(v));
    return known[key] = nodes_.Slice(anchor_, from, dim, begin(chunk), size(chunk), name);
  }

  // What stands for operand `i` of a node in a chunk.
  ValueId Operand(NodeId node, size_t i, int64_t chunk) {
    ValueId v = graph_.operands(node)[i];
    if (!v) return v;
    const Chunk& known = chunk_of_[static_cast<size_t>(chunk)];
    if (auto at = known.find(v.index()); at != known.end()) return at->second;
    Part part = region_.part(node);
    size_t rank = graph_.types().rank(graph_.type(v));
    // A product over rows has them in the other operand, too.
    if (part == Part::kSum && graph_[node].op == op::mm) return Slice(v, i == 0 ? 1 : 0, chunk);
    bool labels = rank == 1 && graph_.types()[graph_.type(v)].dims[0] == region_.rows();
    bool scored = part == Part::kScores && i == 0;
    if (labels || scored) return Slice(v, 0, chunk);
    auto brought = brought_.find(v.index());
    return brought == brought_.end() ? v : brought->second;
  }

  // A type of the region with the rows of a chunk, and two dimensions.
  Type ChunkType(const Type& type, NodeId node, int64_t chunk) const {
    if (type.async) {
      Type out = type;
      for (Type& element : out.elements) element = ChunkType(element, node, chunk);
      return out;
    }
    Part part = region_.part(node);
    if (part == Part::kSum) return type;
    Type out = type;
    if (part == Part::kTurned) {
      out.dims = {type.dims[0], size(chunk)};
    } else {
      out.dims = {size(chunk), type.dims.back()};
    }
    return out;
  }

  void AddChunk(const std::vector<NodeId>& nodes, int64_t chunk) {
    Chunk& known = chunk_of_[static_cast<size_t>(chunk)];
    for (NodeId node : nodes) {
      if (region_.part(node) == Part::kShape) {
        known[graph_[node].first_result.index()] = Operand(node, 0, chunk);
        continue;
      }
      std::vector<ValueId> operands;
      for (size_t i = 0; i < graph_.operands(node).size(); ++i)
        operands.push_back(Operand(node, i, chunk));
      std::vector<ResultSpec> results;
      std::vector<std::string> names;
      for (ValueId v : graph_.results(node)) names.emplace_back(graph_.name(v));
      for (size_t i = 0; i < names.size(); ++i) {
        ValueId v = graph_.results(node)[i];
        Type type = ChunkType(graph_.types()[graph_.type(v)], node, chunk);
        bool again = graph_[node].phase == Phase::kForward && region_.is_wide(v) && !type.async;
        results.push_back({.type = graph_.types().Intern(type),
                           .name = names[i],
                           .keep = again ? Keep::kMustRecompute : Keep::kDefault});
      }
      NodeId copy = nodes_.Copy(anchor_, node, operands, ChunkAttrs(node), results);
      for (size_t i = 0; i < names.size(); ++i)
        known[graph_.results(node)[i].index()] = graph_.results(copy)[i];
    }
  }

  // In a chunk the columns are dimension 1.
  Attrs ChunkAttrs(NodeId node) const {
    Attrs attrs = graph_.attrs(node);
    for (Attr& attr : attrs.list) {
      if (attr.name != "dim" || region_.part(node) != Part::kRows) continue;
      if (std::holds_alternative<int64_t>(attr.value)) attr.value = int64_t{1};
      if (std::holds_alternative<std::vector<int64_t>>(attr.value))
        attr.value = std::vector<int64_t>{1};
    }
    return attrs;
  }

  TypeId SumType(ValueId v) {
    Type type = graph_.types()[graph_.type(v)];
    if (IsFloat(type.dtype) && type.dtype != DType::kF64) type.dtype = DType::kF32;
    return graph_.types().Intern(type);
  }
  ValueId Cast(ValueId from, TypeId to) {
    if (graph_.type(from) == to) return from;
    Attrs attrs;
    attrs.Set("dtype", graph_.types().dtype(to));
    return Add(op::_to_copy, from, {from}, attrs, to);
  }

  // Right behind the chunk, so that one sum is all that is there of a gradient.
  void AddToSums(const std::vector<NodeId>& nodes, int64_t chunk) {
    for (NodeId node : nodes) {
      if (region_.part(node) != Part::kSum) continue;
      for (ValueId v : graph_.results(node)) {
        TypeId type = SumType(v);
        ValueId part = Cast(chunk_of_[static_cast<size_t>(chunk)].at(v.index()), type);
        ValueId& sum = sums_[v.index()];
        sum = sum ? Add(op::add_Tensor, v, {sum, part}, {}, type) : part;
      }
    }
  }

  // Puts chunks together for what reads the whole.
  void Finish(NodeId node) {
    Part part = region_.part(node);
    if (part != Part::kSum && part != Part::kOut) return;
    for (ValueId v : graph_.results(node))
      rewriter_.ReplaceValue(
          v, part == Part::kSum ? Cast(sums_.at(v.index()), graph_.type(v)) : Rows(v));
  }

  ValueId Rows(ValueId v) {
    std::vector<ValueId> parts;
    for (const Chunk& chunk : chunk_of_) parts.push_back(chunk.at(v.index()));
    const Type& type = graph_.types()[graph_.type(v)];
    const Type rows = Type::Tensor(type.dtype, {region_.rows(), type.dims.back()});
    return nodes_.Cat(anchor_, parts, 0, rows, std::string(graph_.name(v)));
  }

  static constexpr uint32_t kSlices = uint32_t{1} << 31;

  Graph& graph_;
  Rewriter& rewriter_;
  PieceNodes nodes_;
  const LossRegion& region_;
  int64_t rows_;
  NodeId anchor_;
  std::vector<Chunk> chunk_of_;
  // By value: what its chunks add up to so far.
  std::unordered_map<uint32_t, ValueId> sums_;
  // Copies of what stands too late.
  std::unordered_map<uint32_t, ValueId> brought_;
};

Result<Changed> ChunkLoss(Graph& graph, const ChunkLossOptions& options, PassContext& context) {
  if (options.rows < 1)
    return Error(Diag::kPassOption, "a chunk of {} rows has none", options.rows);
  Uses uses(graph);
  Rewriter rewriter(graph);
  size_t count = graph.node_count();
  for (uint32_t n = 0; n < count; ++n) {
    NodeId loss{n};
    if (graph[loss].op != op::nll_loss_forward || graph[loss].phase != Phase::kForward) continue;
    LossRegion region(graph, uses, loss);
    auto decline = [&](std::string_view why) {
      context.AddRemark(graph, graph[loss].first_result, RemarkKind::kNoEffect,
                        "the loss is not split by rows: {}", why);
    };
    if (!region.why_not().empty()) {
      decline(region.why_not());
    } else if (region.rows() <= options.rows) {
      decline(fmt::format("it has {}", Counted(region.rows(), "row")));
    } else {
      int64_t chunks = LossChunker(graph, rewriter, region, options.rows).Run();
      if (chunks == 0) decline("backward makes what it needs too late");
      context.Count("losses", chunks > 0 ? 1 : 0);
      context.Count("chunks", chunks);
    }
  }
  return rewriter.Commit();
}

constexpr OptionDef kChunkLossOptions[] = {
    Option<&ChunkLossOptions::rows>("rows", "rows of a rank that are made at a time")};
constexpr std::string_view kChunkLossStats[] = {"losses", "chunks"};

}  // namespace

HEDDLE_DEFINE_PASS(chunk_loss){
    .name = "chunk-loss",
    .summary = "Makes scores, loss and gradients so many rows at a time",
    .run = Run<ChunkLoss>,
    .make_options = Make<ChunkLossOptions>,
    .options = kChunkLossOptions,
    .any_view = false,
    .needs = View::kLocal,
    .numerics = Numerics::kRounding,
    .stats = kChunkLossStats,
};

}  // namespace heddle::compile
