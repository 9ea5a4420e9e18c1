#include "heddle/report/launches.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

std::string UnitOf(const Graph& graph, NodeId id) {
  const AttrValue* unit = graph.attrs(id).Find("unit");
  const auto* text = unit != nullptr ? std::get_if<std::string>(unit) : nullptr;
  return text != nullptr && !text->empty() ? *text : std::string(graph.scope(id));
}

Purpose PurposeOf(const Module& module, const Graph& graph, NodeId id) {
  const Attrs& attrs = graph.attrs(id);
  std::string_view op = graph.op(id).name();
  const AttrValue* over = attrs.Find("over");
  const AttrValue* why = attrs.Find("why");
  return {.phase = graph[id].phase,
          .kind = std::string(op.substr(op.find('.') + 1)),
          .over = over != nullptr ? Format(module.mesh, std::get<Axes>(*over)) : "",
          .why = std::string(why != nullptr ? Name(std::get<Why>(*why)) : ""),
          .unit = UnitOf(graph, id)};
}

}  // namespace

LaunchSums& LaunchSums::operator+=(const LaunchSums& other) {
  count += other.count;
  tensors += other.tensors;
  bytes += other.bytes;
  time += other.time;
  exposed += other.exposed;
  for (size_t r = 0; r < price::kReasonCount; ++r) by_reason[r] += other.by_reason[r];
  return *this;
}

std::vector<Launch> FindLaunches(const Module& module, const Graph& graph,
                                 const price::Simulation& s) {
  std::vector<Launch> launches;
  for (size_t i = 0; i < s.timeline.collectives.size(); ++i) {
    const price::CollectiveTimes& c = s.timeline.collectives[i];
    const price::NodeTimes& times = s.timeline.nodes[c.start.index()];
    Bytes in;
    Bytes out;
    for (ValueId v : graph.operands(c.start)) in += graph.types().bytes(graph.type(v));
    for (ValueId v : graph.results(c.start)) out += graph.types().bytes(graph.type(v));
    launches.push_back({PurposeOf(module, graph, c.start),
                        {.count = 1,
                         .tensors = static_cast<int64_t>(graph.operands(c.start).size()),
                         .bytes = std::max(in, out),
                         .time = times.end - times.begin,
                         .exposed = c.exposed,
                         .by_reason = s.why[i].by_reason}});
  }
  return launches;
}

LaunchGroups GroupByPurpose(const std::vector<Launch>& launches) {
  LaunchGroups groups;
  for (const Launch& launch : launches) {
    Purpose purpose = launch.purpose;
    purpose.unit.clear();
    groups[std::move(purpose)] += launch.sums;
  }
  return groups;
}

LaunchGroups GroupByUnit(const std::vector<Launch>& launches) {
  LaunchGroups groups;
  for (const Launch& launch : launches) groups[launch.purpose] += launch.sums;
  return groups;
}

std::string FormatReasons(const std::array<Nanos, price::kReasonCount>& by_reason) {
  std::vector<size_t> order;
  for (size_t r = 0; r < price::kReasonCount; ++r) {
    if (by_reason[r].value > 0) order.push_back(r);
  }
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return by_reason[a] > by_reason[b]; });
  std::string out;
  for (size_t r : order) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", Name(static_cast<price::Reason>(r)),
                       Format(by_reason[r]));
  }
  return out;
}

nlohmann::ordered_json ToJson(const Purpose& purpose, const LaunchSums& sums) {
  auto because = nlohmann::ordered_json::object();
  for (size_t r = 0; r < price::kReasonCount; ++r) {
    if (sums.by_reason[r].value > 0)
      because[std::string(Name(static_cast<price::Reason>(r)))] = Millis(sums.by_reason[r]);
  }
  return {{"kind", purpose.kind},    {"over", purpose.over},
          {"why", purpose.why},      {"phase", Name(purpose.phase)},
          {"count", sums.count},     {"bytes", sums.bytes.value},
          {"ms", Millis(sums.time)}, {"exposed_ms", Millis(sums.exposed)},
          {"because_ms", because}};
}

std::string NameOf(const Graph& graph, NodeId id) {
  if (graph[id].result_count == 0) return std::string(graph.op(id).name());
  return "%" + std::string(graph.name(graph[id].first_result));
}

std::string_view OpName(const Graph& graph, NodeId id) {
  return graph[id].op == kOpaqueOp ? std::string_view(graph.attrs(id).opaque_op)
                                   : graph.op(id).name();
}

std::string_view NameOfBest(const price::LowerBounds& bounds) {
  Nanos best = bounds.best();
  if (best == bounds.compute) return "all of compute";
  if (best == bounds.stream) return "the busiest stream";
  if (best == bounds.path) return "the longest chain";
  return "collectives that no compute can hide";
}

}  // namespace heddle
