#include "heddle/compile/passes/pipeline/coordinates.h"

#include <algorithm>

#include "heddle/core/ir/edit/call_builder.h"
#include "heddle/core/ir/program.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {

Coordinates::Coordinates(const Mesh& mesh, AxisId axis, const Graph& step, int64_t micro_batches)
    : mesh_(mesh), axis_(axis), step_(step) {
  for (int64_t at = 0; at < mesh[axis].size; ++at)
    all_.emplace_back(mesh, step, fmt::format("{}_{}{}", step.name(), mesh[axis].name, at),
                      micro_batches);
  for (Coordinate& one : all_) {
    for (std::vector<ValueId>& copies : one.copies) copies.resize(step.value_count());
  }
}

std::vector<Graph> Coordinates::TakeGraphs() {
  std::vector<Graph> graphs;
  for (Coordinate& one : all_) graphs.push_back(std::move(one.graph));
  return graphs;
}

ValueId Coordinates::copy(int32_t at, int64_t micro_batch, ValueId value) const {
  const auto& copies = all_[static_cast<size_t>(at)].copies;
  ValueId own =
      micro_batch < 0 ? ValueId() : copies[static_cast<size_t>(micro_batch)][value.index()];
  return own ? own : copies.back()[value.index()];
}

void Coordinates::SetCopy(int32_t at, int64_t micro_batch, ValueId value, ValueId copy) {
  auto& copies = all_[static_cast<size_t>(at)].copies;
  (micro_batch < 0 ? copies.back() : copies[static_cast<size_t>(micro_batch)])[value.index()] =
      copy;
}

void Coordinates::AddInput(int32_t at, int64_t micro_batch, const Input& input) {
  Input own = input;
  if (micro_batch >= 0) own.label = MicroBatchLabel(input.label, micro_batch);
  SetCopy(at, micro_batch, input.value,
          all_[static_cast<size_t>(at)].copier.AddInput(input.value, std::move(own)));
}

void Coordinates::CopyNode(int32_t at, int64_t micro_batch, NodeId node) {
  GraphCopier& copier = all_[static_cast<size_t>(at)].copier;
  for (ValueId v : step_.operands(node)) {
    if (v) copier.Bind(v, copy(at, micro_batch, v));
  }
  copier.CopyNode(node);
  for (ValueId v : step_.results(node)) SetCopy(at, micro_batch, v, copier.of(v));
}

ValueId Coordinates::Append(int32_t at, OpId op, const std::vector<ValueId>& operands,
                            const Attrs& attrs, const Type& type, std::string_view name,
                            NodeId like, Phase phase) {
  Graph& to = graph(at);
  ResultSpec result{to.types().Intern(type), name};
  NodeId node = to.Append({.op = op,
                           .operands = operands,
                           .attrs = to.InternAttrs(CanonicalAttrs(to.ops()[op], attrs)),
                           .results = {&result, 1},
                           .scope = like ? to.InternScope(step_.scope(like)) : ScopeId(),
                           .phase = phase});
  return to[node].first_result;
}

void Coordinates::CopyOutput(int32_t at, const Output& output) {
  GraphCopier& copier = all_[static_cast<size_t>(at)].copier;
  copier.Bind(output.value, copy(at, kOnce, output.value));
  if (output.target) copier.Bind(output.target, copy(at, kOnce, output.target));
  copier.CopyOutput(output);
}

std::string Coordinates::TagOf(ValueId value, int64_t number) const {
  std::string name(step_.name(value));
  if (number == kOnce) return name;
  return number < 0 ? fmt::format("{}.from{}", name, -2 - number)
                    : fmt::format("{}.{}", name, number);
}

Attrs Coordinates::TransferAttrs(std::string_view end, int32_t other) const {
  Attrs attrs;
  attrs.Set("over", Axes(axis_));
  attrs.Set(end, static_cast<int64_t>(other));
  return attrs;
}

void Coordinates::Send(int32_t from, int32_t to, ValueId value, int64_t number, ValueId copy,
                       Phase phase) {
  const Graph& own = graph(from);
  Edge& edge = this->edge(from, to);
  Transfer transfer{value, number, own.types()[own.type(copy)], {}, 0};
  transfer.acknowledged = this->edge(to, from).received;
  std::string tag = TagOf(value, number);
  Attrs attrs = TransferAttrs("to", to);
  attrs.Set("tag", tag);
  Type receipt = Type::Tensor(DType::kBool, {0});
  transfer.sent = Append(from, op::comm_send, {copy}, attrs, Type::Async({receipt}), tag + ".send",
                         step_[value].producer, phase);
  edge.transfers.push_back(std::move(transfer));
}

void Coordinates::LaunchReceive(int32_t at, int32_t from, Edge& edge, Phase phase) {
  HEDDLE_CHECK(edge.received < edge.transfers.size(),
               "a coordinate receives a value that no other one has sent");
  const Transfer& transfer = edge.transfers[edge.received];
  std::string tag = TagOf(transfer.value, transfer.number);
  Attrs attrs = TransferAttrs("from", from);
  attrs.Set("size", transfer.type.dims);
  attrs.Set("dtype", transfer.type.dtype);
  attrs.Set("tag", tag);
  edge.open[edge.received] = Append(at, op::comm_recv, {}, attrs, Type::Async({transfer.type}),
                                    tag + ".recv", step_[transfer.value].producer, phase);
  ++edge.received;
}

ValueId Coordinates::Wait(int32_t at, ValueId handle, const Type& type, const std::string& name,
                          NodeId like, Phase phase) {
  return Append(at, op::comm_wait, {handle}, {}, type, name, like, phase);
}

ValueId Coordinates::Receive(int32_t at, int32_t from, ValueId value, int64_t number, Phase phase) {
  Edge& edge = this->edge(from, at);
  auto is_it = [&](const Transfer& t) { return t.value == value && t.number == number; };
  auto found = std::ranges::find_if(edge.transfers, is_it);
  HEDDLE_CHECK(found != edge.transfers.end(), "a coordinate receives a value before it is sent");
  auto index = static_cast<size_t>(found - edge.transfers.begin());
  while (edge.received <= index) LaunchReceive(at, from, edge, phase);
  auto open = edge.open.find(index);
  HEDDLE_CHECK(open != edge.open.end(), "a coordinate receives a value twice");
  ValueId received = Wait(at, open->second, found->type, std::string(step_.name(value)),
                          step_[value].producer, phase);
  edge.open.erase(open);
  WaitForSends(at, from, found->acknowledged, phase);
  return received;
}

void Coordinates::WaitForSends(int32_t from, int32_t to, size_t end, Phase phase) {
  Edge& edge = this->edge(from, to);
  for (; edge.waited < end; ++edge.waited) {
    const Transfer& transfer = edge.transfers[edge.waited];
    Wait(from, transfer.sent, Type::Tensor(DType::kBool, {0}),
         TagOf(transfer.value, transfer.number) + ".sent", step_[transfer.value].producer, phase);
  }
}

void Coordinates::WaitForSends(Phase phase) {
  for (auto& [ends, edge] : edges_)
    WaitForSends(ends.first, ends.second, edge.transfers.size(), phase);
}

}  // namespace heddle::compile
