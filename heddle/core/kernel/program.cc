#include "heddle/core/kernel/program.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "heddle/core/kernel/element.h"
#include "heddle/core/kernel/group_finder.h"
#include "heddle/core/kernel/half_turn.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

std::string_view PointerType(DType dtype) { return dtype == DType::kBF16 ? "u16" : "float"; }

// Each source value has registers: `v3[8]` in a kernel of elements, `v3[kSteps][4]` in one of rows,
// where step `s` of a thread is one vector of its row.
class ProgramWriter {
 public:
  ProgramWriter(const Graph& graph, const KernelGroup& group, const std::vector<ValueId>& stored)
      : graph_(graph), group_(group), stored_(stored), rows_(group.norm) {}

  KernelProgram Write() {
    std::vector<NodeId> nodes = group_.repeated;
    nodes.insert(nodes.end(), group_.nodes.begin(), group_.nodes.end());
    for (NodeId node : nodes) {
      if (std::optional<HalfTurn> turn = HalfTurnOf(graph_, node)) turns_[node] = *std::move(turn);
    }
    std::erase_if(nodes, [&](NodeId node) {
      return IsFlatView(graph_, node) || std::ranges::any_of(turns_, [&](const auto& turn) {
               return std::ranges::find(turn.second.parts, node) != turn.second.parts.end();
             });
    });
    computed_.insert(nodes.begin(), nodes.end());
    return rows_ ? WriteRows(nodes) : WriteElements(nodes);
  }

 private:
  // The registers of a value that the kernel computes or has loaded.
  struct Registers {
    std::string name;
    bool uniform = false;
  };

  DType DTypeOf(ValueId value) const { return graph_.types().dtype(graph_.type(value)); }
  std::string Step() const { return rows_ ? "[s]" : ""; }
  std::string Lane(const Registers& r) const { return r.name + Step() + (r.uniform ? "" : "[j]"); }

  const Registers& Declare(ValueId source, bool uniform) {
    Registers registers{fmt::format("v{}", registers_.size()), uniform};
    declarations_ += fmt::format("  float {}{}{};\n", registers.name, rows_ ? "[kSteps]" : "",
                                 uniform ? ""
                                 : rows_ ? "[4]"
                                         : "[8]");
    return registers_[source] = registers;
  }

  // The argument for a value from outside the group.
  std::string Argument(ValueId value) {
    program_.inputs.push_back(value);
    std::string name = fmt::format("a{}", program_.inputs.size() - 1);
    arguments_.push_back(
        fmt::format("const {}* __restrict__ {}", PointerType(DTypeOf(value)), name));
    return name;
  }

  // The registers of an operand, which are loaded here if it comes from outside. `result` is the
  // value whose lanes the loop counts.
  const Registers& Operand(ValueId operand, ValueId result, std::string& loads) {
    ValueId source = SourceOf(graph_, operand);
    NodeId producer = graph_[source].producer;
    if (auto found = registers_.find(source); found != registers_.end()) return found->second;
    HEDDLE_CHECK(!producer || !computed_.contains(producer), "a kernel reads a value too early");
    std::string index = "at";
    bool uniform = false;
    if (LanesOf(graph_, operand) != LanesOf(graph_, result)) {
      std::optional<Broadcast> broadcast = BroadcastOf(graph_, operand, result);
      HEDDLE_CHECK(broadcast.has_value(), "a kernel cannot read this operand");
      index = broadcast->index;
      uniform = broadcast->uniform;
    }
    std::string argument = Argument(operand);
    const Registers& registers = Declare(source, uniform);
    loads +=
        uniform
            ? fmt::format("    {}{} = Wide({}[{}]);\n", registers.name, Step(), argument, index)
            : fmt::format("    Load({}{}, {} + ({}));\n", registers.name, Step(), argument, index);
    return registers;
  }

  // Rounds the registers of a result to its type, and stores them if other nodes read the result.
  void Finish(ValueId result, const Registers& registers, std::string& text) {
    std::string name = registers.name + Step();
    if (DTypeOf(result) == DType::kBF16) text += fmt::format("    Round({});\n", name);
    if (std::ranges::find(stored_, result) == stored_.end()) return;
    text += fmt::format("    Store({} + at, {});\n", Output(result), name);
  }
  std::string Output(ValueId result) {
    program_.outputs.push_back(result);
    std::string name = fmt::format("o{}", program_.outputs.size() - 1);
    results_.push_back(fmt::format("{}* __restrict__ {}", PointerType(DTypeOf(result)), name));
    return name;
  }

  // The values that the kernel reads for a node.
  std::vector<ValueId> OperandsOf(NodeId node) const {
    auto turn = turns_.find(node);
    if (turn != turns_.end()) return {turn->second.source};
    std::span<const ValueId> operands = graph_.operands(node);
    return {operands.begin(), operands.end()};
  }

  // A row is in one warp, 4 elements in each lane.
  void WriteTurn(NodeId node, std::string& loads, std::string& text) {
    ValueId result = graph_[node].first_result;
    const HalfTurn& turn = turns_.at(node);
    std::string from = Lane(Operand(turn.source, result, loads));
    const Registers registers = Declare(result, false);
    text += fmt::format(
        "    UNROLL\n    for (int j = 0; j < 4; ++j) {{\n"
        "      const bool lower = lane < 16;\n"
        "      const float other = __shfl_xor_sync(0xffffffffu, {}, 16);\n"
        "      {} = {};\n    }}\n",
        from, Lane(registers), turn.text);
    Finish(result, registers, text);
  }

  // An elementwise node: loads of operands from outside, and its function.
  void WriteElement(NodeId node, std::string& loads, std::string& text) {
    if (turns_.contains(node)) return WriteTurn(node, loads, text);
    ValueId result = graph_[node].first_result;
    std::vector<std::string> lanes;
    for (ValueId operand : graph_.operands(node)) {
      Registers registers = Operand(operand, result, loads);
      lanes.push_back(Lane(registers));
    }
    lanes.resize(2);
    const Registers registers = Declare(result, false);
    std::string_view function = *ElementText(graph_, node);
    if (DTypeOf(result) == DType::kC64) {
      // Load whole vectors, because a pair of lanes is one complex number.
      auto vector = [](const std::string& lane) { return lane.substr(0, lane.size() - 3); };
      text += fmt::format("    ComplexMul({}{}, {}, {});\n", registers.name, Step(),
                          vector(lanes[0]), vector(lanes[1]));
    } else {
      text += fmt::format("    UNROLL\n    for (int j = 0; j < {}; ++j) {} = {};\n", rows_ ? 4 : 8,
                          Lane(registers), fmt::format(fmt::runtime(function), lanes[0], lanes[1]));
    }
    Finish(result, registers, text);
  }

  std::string Signature() const {
    std::string all;
    for (const std::vector<std::string>* list : {&arguments_, &results_}) {
      for (const std::string& argument : *list) all += (all.empty() ? "" : ",\n    ") + argument;
    }
    return all;
  }

  KernelProgram WriteElements(const std::vector<NodeId>& nodes) {
    std::string loads;
    std::string text;
    for (NodeId node : nodes) WriteElement(node, loads, text);
    int64_t count = LanesOf(graph_, graph_[nodes.front()].first_result);
    program_.name = "elements";
    program_.block = 256;
    program_.grid = static_cast<unsigned>((count / kLanes + 255) / 256);
    program_.text = fmt::format(
        "extern \"C\" __global__ void __launch_bounds__(256) elements(\n    {}) {{\n"
        "  const Index at = ((Index)blockIdx.x * 256 + threadIdx.x) * 8;\n"
        "  if (at >= {}) return;\n{}{}{}}}\n",
        Signature(), count, declarations_, loads, text);
    Prepend(count);
    return std::move(program_);
  }

  void Prepend(int64_t count) {
    bool narrow = count < (int64_t{1} << 31);
    program_.text = fmt::format("typedef {} Index;\n{}", narrow ? "u32" : "u64", program_.text);
  }

  // Nodes of the group that the norm depends on.
  std::set<NodeId> BeforeNorm(const std::vector<NodeId>& nodes) const {
    std::set<NodeId> needed = {group_.norm};
    for (size_t i = nodes.size(); i-- > 0;) {
      if (!needed.contains(nodes[i])) continue;
      for (ValueId operand : OperandsOf(nodes[i])) {
        NodeId producer = graph_[SourceOf(graph_, operand)].producer;
        if (producer && computed_.contains(producer)) needed.insert(producer);
      }
    }
    needed.erase(group_.norm);
    return needed;
  }

  KernelProgram WriteRows(const std::vector<NodeId>& nodes) {
    int64_t width = RowWidth(graph_, group_.norm);
    int64_t rows = LanesOf(graph_, graph_[group_.norm].first_result) / width;
    int64_t threads = width <= 128 ? 32 : 128;
    std::set<NodeId> before = BeforeNorm(nodes);
    std::string loads;
    std::string first;
    for (NodeId node : nodes) {
      if (before.contains(node)) WriteElement(node, loads, first);
    }
    std::string sum;
    std::string second;
    WriteNorm(width, loads, sum, second);
    std::string late;
    for (NodeId node : nodes) {
      if (node != group_.norm && !before.contains(node)) WriteElement(node, late, second);
    }
    // Loads before the sum keep more bytes in flight, as long as registers suffice.
    (width <= 2048 ? loads : second).insert(width <= 2048 ? loads.size() : 0, late);
    program_.name = "rows";
    program_.block = 128;
    program_.grid = static_cast<unsigned>((rows * threads + 127) / 128);
    std::string begin =
        "  UNROLL\n  for (int s = 0; s < kSteps; ++s) {\n"
        "    const int vector = s * kThreads + lane;\n"
        "    if (kVectors % kThreads != 0 && vector >= kVectors) continue;\n";
    std::string at = "    const Index at = (Index)row * kWidth + vector * 4;\n";
    program_.text = fmt::format(
        "constexpr int kWidth = {}, kVectors = {}, kThreads = {}, kSteps = {};\n"
        "extern \"C\" __global__ void __launch_bounds__(128) rows(\n    {}) {{\n"
        "  const int lane = threadIdx.x % kThreads;\n"
        "  const u32 row = blockIdx.x * (128 / kThreads) + threadIdx.x / kThreads;\n"
        "  if (row >= {}) return;\n{}"
        "{}{}{}{}  }}\n{}{}{}{}  }}\n}}\n",
        width, width / 4, threads, (width / 4 + threads - 1) / threads, Signature(), rows,
        declarations_, begin, at, loads, first, sum, begin, at, second);
    Prepend(rows * width);
    return std::move(program_);
  }

  // `sum` adds up the row; `second` has the norm's result for each vector.
  void WriteNorm(int64_t width, std::string& loads, std::string& sum, std::string& second) {
    std::span<const ValueId> operands = graph_.operands(group_.norm);
    ValueId result = graph_[group_.norm].first_result;
    bool forward = graph_[group_.norm].op == op::_fused_rms_norm;
    std::string chain =
        "  float sum = 0.f;\n  UNROLL\n  for (int s = 0; s < kSteps; ++s) {\n"
        "    if (kVectors % kThreads != 0 && s * kThreads + lane >= kVectors) continue;\n"
        "    UNROLL\n    for (int j = 0; j < 4; ++j) sum = ";
    std::string value;
    if (forward) {
      std::string x = Lane(Operand(operands[0], result, loads));
      std::string w = Lane(Operand(operands[1], result, loads));
      double eps = std::get<double>(*graph_.attrs(group_.norm).Find("eps"));
      sum = chain + fmt::format("__fmaf_rn({0}, {0}, sum);\n  }}\n", x);
      sum += fmt::format(
          "  const float rstd = rsqrtf(__fadd_rn(__fdiv_rn(RowSum<kThreads>(sum), {}.f), "
          "{:a}f));\n",
          width, static_cast<float>(eps));
      ValueId rstd(result.index() + 1);
      if (std::ranges::find(stored_, rstd) != stored_.end())
        sum += fmt::format("  if (lane == 0) {}[row] = rstd;\n", Output(rstd));
      value = fmt::format("__fmul_rn({}, __fmul_rn(rstd, {}))", w, x);
    } else {
      std::string dy = Lane(Operand(operands[0], result, loads));
      std::string x = Lane(Operand(operands[1], result, loads));
      std::string w = Lane(Operand(operands[3], result, loads));
      sum =
          fmt::format("  const float rstd = {}[row];\n", Argument(operands[2])) + chain +
          fmt::format("__fmaf_rn(rstd, __fmul_rn(__fmul_rn({}, {}), {}), sum);\n  }}\n", dy, w, x);
      sum += fmt::format(
          "  const float total = RowSum<kThreads>(sum);\n"
          "  const float scale = __fmul_rn(__fdiv_rn(1.f, {}.f), rstd);\n",
          width);
      value = fmt::format(
          "__fmul_rn(__fmaf_rn({}, __fmul_rn({}.f, {}), -__fmul_rn(total, __fmul_rn(rstd, {}))), "
          "scale)",
          dy, width, w, x);
    }
    const Registers registers = Declare(result, false);
    second += fmt::format("    UNROLL\n    for (int j = 0; j < 4; ++j) {} = {};\n", Lane(registers),
                          value);
    Finish(result, registers, second);
  }

  const Graph& graph_;
  const KernelGroup& group_;
  const std::vector<ValueId>& stored_;
  bool rows_;
  std::set<NodeId> computed_;
  std::map<NodeId, HalfTurn> turns_;
  KernelProgram program_;
  std::map<ValueId, Registers> registers_;
  std::string declarations_;
  std::vector<std::string> arguments_;
  std::vector<std::string> results_;
};

}  // namespace

std::optional<NormWeightGradient> WeightGradientOf(const Graph& graph, const Uses& uses,
                                                   const KernelGroup& group) {
  if (!group.norm || graph[group.norm].op != op::_fused_rms_norm_backward) return std::nullopt;
  ValueId result(graph[group.norm].first_result.index() + 1);
  if (uses.unused(result)) return std::nullopt;
  std::span<const ValueId> operands = graph.operands(group.norm);
  int64_t width = RowWidth(graph, group.norm);
  return NormWeightGradient{
      operands[0], operands[1], operands[2], result, LanesOf(graph, operands[0]) / width, width};
}

StoredValues StoredValuesOf(const Graph& graph, const Uses& uses,
                            const std::vector<KernelGroup>& groups, size_t group) {
  StoredValues out{EscapingValues(graph, uses, groups, group),
                   WeightGradientOf(graph, uses, groups[group])};
  if (!out.weight) return out;
  std::erase(out.stored, out.weight->result);
  // The other kernel reads the gradient of the norm's result.
  ValueId gradient = SourceOf(graph, out.weight->gradient);
  NodeId producer = graph[gradient].producer;
  const std::vector<NodeId>& nodes = groups[group].nodes;
  if (producer && std::ranges::find(nodes, producer) != nodes.end() &&
      std::ranges::find(out.stored, gradient) == out.stored.end())
    out.stored.push_back(gradient);
  return out;
}

GroupProgram WriteGroupProgram(const Graph& graph, const Uses& uses,
                               const std::vector<KernelGroup>& groups, size_t group) {
  StoredValues values = StoredValuesOf(graph, uses, groups, group);
  return {WriteProgram(graph, groups[group], values.stored), values.weight};
}

KernelProgram WriteProgram(const Graph& graph, const KernelGroup& group,
                           const std::vector<ValueId>& stored) {
  return ProgramWriter(graph, group, stored).Write();
}

}  // namespace heddle
