// offload: copies marked values to host memory, and back in time for backward.
//
//  fwd:                                              fwd:
//   %a = aten.sin(%x)  keep=offload                   %a = aten.sin(%x)  keep=offload
//   ...                                               %a.host! = mem.offload(%a)
//  bwd:                                               ...
//   ...                                               %a.host = comm.wait(%a.host!)
//   %d = aten.neg(%a)                     becomes    bwd:
//                                                     %a.back! = mem.reload(%a.host)
//                                                     ...
//                                                     %a.back = comm.wait(%a.back!)
//                                                     %d = aten.neg(%a.back)
//
// The copy out starts after the node that produces the value, and its wait is a given number of
// nodes after the last reader in forward. The copy back starts a given number of nodes before the
// first reader after forward; all readers after forward use the copy. Both copies run on the copy
// engine. A value whose storage an update takes over stays.
#include <algorithm>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/memory/recompute.h"
#include "heddle/core/ir/edit/inserter.h"
#include "heddle/core/ir/storage.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

struct OffloadOptions {
  int64_t prefetch = 64;
};

class Offloader {
 public:
  Offloader(Graph& graph, const OffloadOptions& options, PassContext& context)
      : graph_(graph),
        options_(options),
        context_(context),
        donations_(graph),
        last_read_(graph.value_count()),
        first_needed_(graph.value_count()),
        rewriter_(graph),
        inserter_(graph, rewriter_) {}

  Changed Run() {
    FindReaders();
    std::vector<ValueId> moved;
    for (ValueId v : graph_.values()) {
      if (graph_[v].keep == Keep::kOffload && Moves(v)) moved.push_back(v);
    }
    for (ValueId v : moved) back_.emplace_back(v, Move(v));
    Redirect();
    return rewriter_.Commit();
  }

 private:
  void FindReaders() {
    size_ = graph_.node_count();
    for (NodeId node : graph_.nodes()) {
      if (graph_[node].phase == Phase::kForward) last_forward_ = node;
      ForEachRead(graph_, node, [&](ValueId v) {
        if (graph_[node].phase == Phase::kForward) {
          last_read_[v.index()] = node;
        } else if (!first_needed_[v.index()]) {
          first_needed_[v.index()] = node;
        }
      });
    }
  }

  bool Moves(ValueId v) {
    NodeId producer = graph_[v].producer;
    const Type& type = graph_.types()[graph_.type(v)];
    NodeId needed = first_needed_[v.index()];
    if (!producer || graph_[producer].phase != Phase::kForward || !needed || type.async ||
        type.space != Space::kDevice)
      return false;
    const char* why = nullptr;
    if (donations_.taker(v)) why = "an update takes over its storage";
    // A node after forward reads the value before forward ends.
    if (needed < last_forward_) why = "backward needs it before forward ends";
    if (why == nullptr) return true;
    context_.AddRemark(graph_, v, RemarkKind::kNotRecomputed, "stays on the device: {}", why);
    return false;
  }

  // Returns the value after the copy back.
  ValueId Move(ValueId v) {
    NodeId producer = graph_[v].producer;
    NodeId last_read = last_read_[v.index()];
    if (!last_read || last_read < producer) last_read = producer;
    NodeId out_end{std::min<size_t>(last_read.index() + distance(), last_forward_.index())};
    NodeId needed = first_needed_[v.index()];
    NodeId back_begin{std::max<size_t>(
        needed.index() - std::min<size_t>(needed.index(), distance()), last_forward_.index() + 1)};
    TypeId device = graph_.type(v);
    Type on_host = graph_.types()[device];
    on_host.space = Space::kHost;
    TypeId host = graph_.types().Intern(on_host);
    std::string name(graph_.name(v));
    ValueId out = inserter_.Add(Inserter::After(producer), op::mem_offload, name + ".host!", {v},
                                {}, graph_.types().Async({&host, 1}));
    // If the copy begins at the last node of forward, its wait follows it.
    if (out_end <= producer) out_end = graph_[out].producer;
    ValueId held =
        inserter_.Add({out_end, true, producer}, op::comm_wait, name + ".host", {out}, {}, host);
    ValueId in = inserter_.Add({back_begin, false, producer}, op::mem_reload, name + ".back!",
                               {held}, {}, graph_.types().Async({&device, 1}));
    context_.Count("values");
    context_.Count("bytes", graph_.types().bytes(device).value);
    return inserter_.Add({needed, false, producer}, op::comm_wait, name + ".back", {in}, {},
                         device);
  }

  void Redirect() {
    std::vector<ValueId> now(graph_.value_count());
    for (auto [v, back] : back_) now[v.index()] = back;
    for (uint32_t n = 0; n < size_; ++n) {
      NodeId node{n};
      if (graph_[node].phase == Phase::kForward) continue;
      for (size_t i = 0; i < graph_.operands(node).size(); ++i) {
        ValueId v = graph_.operands(node)[i];
        if (v && now[v.index()]) rewriter_.SetOperand(node, i, now[v.index()]);
      }
    }
  }

  size_t distance() const { return static_cast<size_t>(options_.prefetch); }

  Graph& graph_;
  const OffloadOptions& options_;
  PassContext& context_;
  BufferDonations donations_;
  // Indexed by value: its last reader in forward, and its first reader after forward.
  std::vector<NodeId> last_read_;
  std::vector<NodeId> first_needed_;
  NodeId last_forward_;
  size_t size_ = 0;
  std::vector<std::pair<ValueId, ValueId>> back_;
  Rewriter rewriter_;
  Inserter inserter_;
};

Result<Changed> Offload(Graph& graph, const OffloadOptions& options, PassContext& context) {
  if (options.prefetch < 0)
    return Error(Diag::kPassOption, "`prefetch` is {}; expected at least 0", options.prefetch);
  return Offloader(graph, options, context).Run();
}

constexpr OptionDef kOffloadOptions[] = {
    Option<&OffloadOptions::prefetch>("prefetch",
                                      "number of nodes between the start of a copy back and its "
                                      "use, and between the start and the wait of a copy out")};
constexpr std::string_view kOffloadStats[] = {"values", "bytes"};

}  // namespace

HEDDLE_DEFINE_PASS(offload){
    .name = "offload",
    .summary = "Copies values marked `offload` to host memory, and back for backward",
    .run = Run<Offload>,
    .make_options = Make<OffloadOptions>,
    .options = kOffloadOptions,
    .any_view = false,
    .needs = View::kLocal,
    .stats = kOffloadStats,
};

}  // namespace heddle::compile
