#include "heddle/core/kernel/element.h"

#include <algorithm>

#include <fmt/format.h>

#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

struct Function {
  OpId op;
  std::string_view text;
};
constexpr Function kFunctions[] = {
    {op::add_Tensor, "Add({0}, {1})"},
    {op::sub_Tensor, "Sub({0}, {1})"},
    {op::mul_Tensor, "Mul({0}, {1})"},
    {op::div_Tensor, "Div({0}, {1})"},
    {op::neg, "Neg({0})"},
    {op::silu, "Silu({0})"},
    {op::sigmoid, "Sigmoid({0})"},
    {op::silu_backward, "SiluBackward({0}, {1})"},
    {op::_to_copy, "{0}"},
};

bool IsReal(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF32; }

// Casts have only the type as an attribute. All other functions have none.
bool HasPlainAttrs(const Graph& graph, NodeId node) {
  return std::ranges::all_of(graph.attrs(node).list, [&](const Attr& attr) {
    return graph[node].op == op::_to_copy && attr.name == "dtype";
  });
}

// Neighbouring dimensions that a smaller operand and the result both have. The operand's index
// there is at / divisor % size * stride.
struct BroadcastRun {
  int64_t divisor;
  int64_t size;
  int64_t stride;
};

// The lanes of one element: two if it is complex.
int64_t ElementLanes(const Graph& graph, ValueId value) {
  return graph.types().dtype(graph.type(value)) == DType::kC64 ? 2 : 1;
}

// From the last dimension; empty for one number. Nullopt if a vector would need several loads.
std::optional<std::vector<BroadcastRun>> RunsOf(const Graph& graph, ValueId operand,
                                                ValueId result) {
  std::span<const Dim> small = graph.types().dims(graph.type(operand));
  std::span<const Dim> large = graph.types().dims(graph.type(result));
  if (small.size() > large.size()) return std::nullopt;
  size_t missing = large.size() - small.size();
  int64_t width = ElementLanes(graph, result);
  std::vector<BroadcastRun> runs;
  int64_t divisor = width;
  int64_t stride = width;
  bool open = false;
  for (size_t d = large.size(); d-- > 0;) {
    int64_t size = d < missing ? 1 : small[d - missing];
    if (size != 1 && size != large[d]) return std::nullopt;
    if (large[d] == 1) continue;
    if (size != 1 && open) runs.back().size *= size;
    if (size != 1 && !open) runs.push_back({divisor, size, stride});
    open = size != 1;
    divisor *= large[d];
    stride *= size;
  }
  if (runs.empty()) return width == 1 ? std::optional(runs) : std::nullopt;
  // Lanes of the innermost run are next to each other; dimensions before it repeat one number.
  bool uniform = runs[0].divisor != width;
  if ((uniform ? runs[0].divisor : runs[0].size * width) % kLanes != 0 || (uniform && width != 1))
    return std::nullopt;
  return runs;
}

}  // namespace

int64_t LanesOf(const Graph& graph, ValueId value) {
  TypeId type = graph.type(value);
  if (graph.types().is_async(type) || graph.types().space(type) != Space::kDevice) return 0;
  DType dtype = graph.types().dtype(type);
  if (!IsReal(dtype) && dtype != DType::kC64) return 0;
  int64_t lanes = dtype == DType::kC64 ? 2 : 1;
  for (Dim dim : graph.types().dims(type)) {
    if (IsSymbol(dim)) return 0;
    lanes *= dim;
  }
  return lanes;
}

bool IsFlatView(const Graph& graph, NodeId node) {
  OpId op = graph[node].op;
  return (op == op::view || op == op::_unsafe_view || op == op::view_as_complex ||
          op == op::view_as_real || op == op::unsqueeze) &&
         LanesOf(graph, graph[node].first_result) > 0 &&
         LanesOf(graph, graph.operands(node)[0]) > 0;
}

ValueId SourceOf(const Graph& graph, ValueId value) {
  while (NodeId producer = graph[value].producer) {
    if (!IsFlatView(graph, producer)) break;
    value = graph.operands(producer)[0];
  }
  return value;
}

std::optional<std::string_view> ElementText(const Graph& graph, NodeId node) {
  const Function* function =
      std::ranges::find(kFunctions, graph[node].op, [](const Function& f) { return f.op; });
  if (function == std::end(kFunctions) || !HasPlainAttrs(graph, node)) return std::nullopt;
  ValueId result = graph[node].first_result;
  int64_t lanes = LanesOf(graph, result);
  if (lanes == 0 || lanes % kLanes != 0) return std::nullopt;
  DType dtype = graph.types().dtype(graph.type(result));
  for (ValueId operand : graph.operands(node)) {
    if (!operand || LanesOf(graph, operand) == 0) return std::nullopt;
    // Where types differ, ATen rounds the smaller operand first.
    DType from = graph.types().dtype(graph.type(operand));
    bool cast = graph[node].op == op::_to_copy && IsReal(from) && IsReal(dtype);
    if (from != dtype && !cast) return std::nullopt;
    if (LanesOf(graph, operand) != lanes && !RunsOf(graph, operand, result)) return std::nullopt;
  }
  if (IsReal(dtype)) return function->text;
  // ComplexMul computes the pair that lane j belongs to.
  if (graph[node].op != op::mul_Tensor) return std::nullopt;
  return "ComplexMul({0}, {1})";
}

std::optional<Broadcast> BroadcastOf(const Graph& graph, ValueId operand, ValueId result) {
  std::optional<std::vector<BroadcastRun>> runs = RunsOf(graph, operand, result);
  if (!runs) return std::nullopt;
  if (runs->empty()) return Broadcast{true, "0"};
  int64_t width = ElementLanes(graph, result);
  std::string index;
  for (const BroadcastRun& run : *runs) {
    bool innermost = run.divisor == width;
    std::string term = innermost
                           ? fmt::format("at % {}", run.size * width)
                           : fmt::format("at / {} % {} * {}", run.divisor, run.size, run.stride);
    index = index.empty() ? term : term + " + " + index;
  }
  return Broadcast{runs->front().divisor != width, index};
}

}  // namespace heddle
