#include "heddle/report/trace.h"

#include <nlohmann/json.hpp>

#include "heddle/core/ops/ops.h"
#include "heddle/report/launches.h"

namespace heddle {
namespace {

class TraceWriter {
 public:
  std::string Finish() {
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + events_ + "\n]}\n";
  }

  void AddGraph(const Module& module, const Graph& graph, const price::Simulation& s,
                size_t process) {
    process_ = process;
    last_bytes_ = {-1};
    Meta("process_name", 0, "@" + graph.name());
    Meta("thread_name", 0, "compute");
    for (size_t i = 0; i < s.graph.streams().size(); ++i)
      Meta("thread_name", i + 1, s.graph.streams()[i]);
    for (size_t position = 0; position < s.timeline.order.size(); ++position) {
      NodeId id = s.timeline.order[position];
      const price::NodeTimes& times = s.timeline.nodes[id.index()];
      switch (s.graph[id].kind) {
        case price::Task::Kind::kStart:
          AddCollective(module, graph, s,
                        s.timeline.collectives[s.timeline.collective_of[id.index()]],
                        s.why[s.timeline.collective_of[id.index()]]);
          break;
        case price::Task::Kind::kWait:
          Span("wait", NameOf(graph, id), 0, times.reached, times.begin, "{}");
          Span("unpack", NameOf(graph, id), 0, times.begin, times.end, "{}");
          break;
        case price::Task::Kind::kCompute:
          Span(graph[id].op == kOpaqueOp ? "opaque" : graph.op(id).family, NameOf(graph, id), 0,
               times.begin, times.end, Args(graph, id));
          break;
      }
      Counter(times.reached, s.timeline.live[position]);
    }
  }

 private:
  // Names come from users, so they are escaped.
  static std::string Quoted(std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  }
  static std::string Micros(Nanos time) {
    return fmt::format("{}.{:03}", time.value / 1000, time.value % 1000);
  }
  static std::string Args(const Graph& graph, NodeId id) {
    return fmt::format("{{\"op\":{},\"scope\":{},\"phase\":{}}}", Quoted(OpName(graph, id)),
                       Quoted(graph.scope(id)), Quoted(Name(graph[id].phase)));
  }

  void Line(const std::string& event) {
    if (!events_.empty()) events_ += ",\n";
    events_ += event;
  }
  void Meta(std::string_view what, size_t thread, std::string_view name) {
    Line(fmt::format(
        "{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"args\":{{\"name\":{}}}}}", process_,
        thread, what, Quoted(name)));
  }
  void Span(std::string_view category, const std::string& name, size_t thread, Nanos begin,
            Nanos end, const std::string& args) {
    if (begin == end) return;
    Line(fmt::format(
        "{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},\"cat\":{},\"name\":{},"
        "\"args\":{}}}",
        process_, thread, Micros(begin), Micros(end - begin), Quoted(category), Quoted(name),
        args));
  }
  void Counter(Nanos time, Bytes bytes) {
    if (bytes == last_bytes_) return;
    last_bytes_ = bytes;
    Line(fmt::format(
        "{{\"ph\":\"C\",\"pid\":{},\"ts\":{},\"name\":\"memory\",\"args\":{{\"bytes\":{}}}}}",
        process_, Micros(time), bytes.value));
  }

  void AddCollective(const Module& module, const Graph& graph, const price::Simulation& s,
                     const price::CollectiveTimes& c, const price::Exposure& why) {
    const price::NodeTimes& times = s.timeline.nodes[c.start.index()];
    const AttrValue* over = graph.attrs(c.start).Find("over");
    Bytes bytes;
    for (ValueId value : graph.operands(c.start)) bytes += graph.types().bytes(graph.type(value));
    std::string args = fmt::format(
        "{{\"op\":{},\"over\":{},\"scope\":{},\"bytes\":{},\"queued_us\":{},\"shared_us\":{},"
        "\"exposed_us\":{},\"because\":{}}}",
        Quoted(graph.op(c.start).name()),
        Quoted(over != nullptr ? Format(module.mesh, std::get<Axes>(*over)) : ""),
        Quoted(graph.scope(c.start)), bytes.value, Micros(c.queued), Micros(c.shared),
        Micros(c.exposed), Quoted(c.exposed.value > 0 ? Name(why.main()) : ""));
    Span("collective", NameOf(graph, c.start), c.stream + 1, times.begin, times.end, args);
  }

  std::string events_;
  size_t process_ = 0;
  Bytes last_bytes_{-1};
};

}  // namespace

std::string FormatTrace(const Module& module, const std::vector<TracedGraph>& graphs) {
  TraceWriter writer;
  for (size_t i = 0; i < graphs.size(); ++i)
    writer.AddGraph(module, *graphs[i].graph, *graphs[i].simulation, i);
  return writer.Finish();
}

}  // namespace heddle
