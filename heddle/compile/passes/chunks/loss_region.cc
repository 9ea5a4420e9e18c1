#include "heddle/compile/passes/chunks/loss_region.h"

#include <algorithm>

#include "heddle/core/analysis/launch.h"
#include "heddle/core/ops/families.h"

namespace heddle::compile {

LossRegion::LossRegion(const Graph& graph, const Uses& uses, CutRules& rules, NodeId loss,
                       int64_t rows_of_piece)
    : CutRegion(graph, uses, rules),
      rows_of_piece_(rows_of_piece),
      part_(graph.node_count()),
      wide_(graph.value_count()),
      turned_(graph.value_count()) {
  if (Accepts(loss)) FindForward(loss);
  if (why_not_.empty()) FindBackward();
  if (why_not_.empty()) CheckReaders();
  if (!why_not_.empty()) return;
  style_ = {.packs = false, .keeps_names = false, .adds_in_f32 = true};
  for (const std::vector<NodeId>* nodes : {&forward_, &backward_}) {
    for (NodeId node : *nodes) SetCuts(node);
  }
}

void LossRegion::SetCuts(NodeId node) {
  constexpr Cut kRows;
  constexpr Cut kColumns{.dim = 1};
  constexpr Cut kSums{.kind = Cut::Kind::kSum};
  const Part part = part_[node.index()];
  NodeCut cut = rules_.Empty(node);
  for (size_t i = 0; i < cut.operands.size(); ++i) {
    ValueId v = graph_.operands(node)[i];
    if (!v) continue;
    std::span<const Dim> dims = graph_.types().dims(graph_.type(v));
    const bool labels = dims.size() == 1 && dims[0] == rows_;
    if (values_[v.index()]) {
      cut.operands[i] = values_[v.index()];
    } else if (part == Part::kSum && graph_[node].op == op::mm) {
      // A product that sums over rows has rows in both operands.
      cut.operands[i] = i == 0 ? kColumns : kRows;
    } else if (labels || (part == Part::kScores && i == 0)) {
      cut.operands[i] = kRows;
    }
  }
  for (size_t i = 0; i < cut.results.size(); ++i) {
    cut.results[i] = part == Part::kSum ? kSums : part == Part::kTurned ? kColumns : kRows;
    values_[graph_.results(node)[i].index()] = cut.results[i];
  }
  in_[node.index()] = true;
  cuts_[node.index()] = std::move(cut);
}

std::vector<CutRegion::Stage> LossRegion::Stages() const {
  std::vector<Stage> stages{{forward_.back(), forward_}};
  if (!backward_.empty()) stages.push_back({backward_.front(), backward_});
  return stages;
}

CutRegion::Rows LossRegion::RowsOf(int64_t rows, int64_t piece) const {
  const int64_t begin = piece * rows_of_piece_;
  return {begin, std::min(rows_of_piece_, rows - begin)};
}

// In a piece the columns are dimension 1.
Attrs LossRegion::AttrsOf(NodeId node, int64_t /*piece*/) const {
  Attrs attrs = graph_.attrs(node);
  for (Attr& attr : attrs.list) {
    if (attr.name != "dim" || part_[node.index()] != Part::kRows) continue;
    if (std::holds_alternative<int64_t>(attr.value)) attr.value = int64_t{1};
    if (std::holds_alternative<std::vector<int64_t>>(attr.value))
      attr.value = std::vector<int64_t>{1};
  }
  return attrs;
}

// Backward recomputes the scores.
Keep LossRegion::KeepOf(ValueId v) const {
  const bool forward = graph_[graph_[v].producer].phase == Phase::kForward;
  const bool again = forward && wide_[v.index()] && !graph_.types()[graph_.type(v)].async;
  return again ? Keep::kMustRecompute : Keep::kDefault;
}

bool LossRegion::Sums(NodeId node) const {
  constexpr int64_t kSum = 2;
  const AttrValue* reduction = graph_.attrs(node).Find("reduction");
  return reduction != nullptr && *reduction == AttrValue(kSum);
}

bool LossRegion::Accepts(NodeId loss) {
  const Type& scores = graph_.types()[graph_.type(graph_.operands(loss)[0])];
  if (!Sums(loss)) {
    Refuse(loss, "does not compute a sum");
  } else if (graph_.operands(loss).size() > 2 && graph_.operands(loss)[2]) {
    Refuse(loss, "has class weights");
  } else if (scores.rank() != 2 || IsSymbol(scores.dims[0])) {
    Refuse(loss, "has a number of rows that is known only at run time");
  } else {
    rows_ = scores.dims[0];
  }
  return why_not_.empty();
}

void LossRegion::Refuse(NodeId node, std::string_view why) {
  if (why_not_.empty())
    why_not_ = fmt::format("%{}, {}, {}", graph_.name(graph_[node].first_result),
                           graph_.op(node).name(), why);
}

void LossRegion::Add(NodeId node, Part part) {
  part_[node.index()] = part;
  for (ValueId v : graph_.results(node)) {
    wide_[v.index()] = part == Part::kRows || part == Part::kShape || part == Part::kScores;
    turned_[v.index()] = part == Part::kTurned;
  }
}

// Whether the value has rows of classes, or rows of one number.
bool LossRegion::HasRows(ValueId v) const {
  const Type& type = graph_.types()[graph_.type(v)];
  if (type.async || type.rank() < 2) return false;
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < type.rank(); ++i) {
    if (IsSymbol(type.dims[i]) || type.dims[i] > rows_) return false;
    rows *= type.dims[i];
  }
  return rows == rows_;
}

bool LossRegion::KeepsColumns(NodeId node) const {
  ValueId from = graph_.operands(node)[0];
  ValueId to = graph_[node].first_result;
  return HasRows(from) && HasRows(to) &&
         graph_.types()[graph_.type(from)].dims.back() ==
             graph_.types()[graph_.type(to)].dims.back();
}

// Whether the node's dimension attribute is the last dimension.
bool LossRegion::AlongColumns(NodeId node) const {
  const AttrValue* dim = graph_.attrs(node).Find("dim");
  ValueId v = graph_.operands(node)[0];
  auto last = static_cast<int64_t>(graph_.types().rank(graph_.type(v))) - 1;
  if (dim == nullptr) return last == 0;
  if (const auto* one = std::get_if<int64_t>(dim)) return *one == last || *one == -1;
  const auto* list = std::get_if<std::vector<int64_t>>(dim);
  return list != nullptr && list->size() == 1 && ((*list)[0] == last || (*list)[0] == -1);
}

bool LossRegion::ReadsWide(NodeId node) const {
  return std::ranges::any_of(graph_.operands(node), [&](ValueId v) {
    return v && (wide_[v.index()] || turned_[v.index()]);
  });
}

LossRegion::Part LossRegion::PartOfProduct(NodeId node) const {
  ValueId left = graph_.operands(node)[0];
  ValueId right = graph_.operands(node)[1];
  if (graph_[node].phase == Phase::kForward)
    return HasRows(left) && graph_.types()[graph_.type(left)].rank() == 2 ? Part::kScores
                                                                          : Part::kNone;
  auto outside = [&](ValueId v) { return !wide_[v.index()] && !turned_[v.index()]; };
  if (turned_[left.index()] && outside(right)) return Part::kSum;
  if (wide_[right.index()] && outside(left)) return Part::kSum;
  return wide_[left.index()] && outside(right) ? Part::kOut : Part::kNone;
}

LossRegion::Part LossRegion::PartOf(NodeId node) const {
  OpId id = graph_[node].op;
  if (id == op::mm) return PartOfProduct(node);
  if (id == op::view || id == op::_unsafe_view)
    return KeepsColumns(node) ? Part::kShape : Part::kNone;
  if (id == op::t && graph_[node].phase != Phase::kForward) return Part::kTurned;
  if (id == op::nll_loss_backward) return Sums(node) ? Part::kRows : Part::kNone;
  NodeId launch = LaunchOf(graph_, node);
  if (launch) return PartOf(launch);
  bool along = id == op::_log_softmax || id == op::_log_softmax_backward_data || id == op::amax ||
               id == op::sum_dim_IntList || id == op::comm_all_gather;
  if (along || id == op::comm_all_reduce) {
    bool one = id == op::_log_softmax_backward_data || graph_.operands(node).size() == 1;
    ValueId v = graph_.operands(node)[0];
    bool rows_stay = id == op::comm_all_reduce || AlongColumns(node);
    const AttrValue* keepdim = graph_.attrs(node).Find("keepdim");
    bool reduces = id == op::amax || id == op::sum_dim_IntList;
    if (reduces && (keepdim == nullptr || *keepdim != AttrValue(true))) return Part::kNone;
    return one && HasRows(v) && rows_stay ? Part::kRows : Part::kNone;
  }
  bool pointwise = IsPointwise(graph_.op(node)) || id == op::_to_copy || id == op::clone;
  bool each = std::ranges::all_of(graph_.operands(node), [&](ValueId v) {
    return !v || HasRows(v) || graph_.types().rank(graph_.type(v)) == 0;
  });
  return pointwise && each ? Part::kRows : Part::kNone;
}

void LossRegion::FindForward(NodeId loss) {
  Add(loss, Part::kSum);
  std::vector<ValueId> open{graph_.operands(loss)[0]};
  while (!open.empty() && why_not_.empty()) {
    ValueId v = open.back();
    open.pop_back();
    NodeId node = graph_[v].producer;
    if (!node || graph_[node].phase != Phase::kForward)
      return Refuse(loss, "reads scores that forward does not compute");
    if (part_[node.index()] != Part::kNone) continue;
    Part part = PartOf(node);
    if (part == Part::kNone) return Refuse(node, "cannot be computed row by row");
    Add(node, part);
    NodeId launch = LaunchOf(graph_, node);
    if (launch) part_[launch.index()] = Part::kRows;
    if (part == Part::kScores) continue;
    for (ValueId operand : graph_.operands(launch ? launch : node)) {
      if (operand && HasRows(operand)) open.push_back(operand);
    }
  }
  for (NodeId node : graph_.nodes()) {
    if (part_[node.index()] != Part::kNone) forward_.push_back(node);
  }
}

void LossRegion::FindBackward() {
  for (NodeId node : graph_.nodes()) {
    if (graph_[node].phase == Phase::kForward) continue;
    NodeId launch = LaunchOf(graph_, node);
    bool waits = launch && part_[launch.index()] == Part::kRows;
    if (!waits && !ReadsWide(node)) continue;
    Part part = waits ? Part::kRows : PartOf(node);
    if (part == Part::kNone) return Refuse(node, "cannot be computed row by row");
    Add(node, part);
    backward_.push_back(node);
  }
}

void LossRegion::CheckReaders() {
  for (const std::vector<NodeId>* nodes : {&forward_, &backward_}) {
    for (NodeId node : *nodes) {
      for (ValueId v : graph_.results(node)) {
        if (!wide_[v.index()] && !turned_[v.index()]) continue;
        if (uses_.is_output(v)) return Refuse(node, "is an output");
        for (const Use& use : uses_.of(v)) {
          if (part_[use.node.index()] == Part::kNone)
            return Refuse(use.node, "reads scores, but cannot be computed row by row");
        }
      }
    }
  }
}

}  // namespace heddle::compile
