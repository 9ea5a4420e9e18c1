#include "heddle/report/profile/trace_file.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "heddle/core/base/file.h"
#include "heddle/core/base/json_fields.h"
#include "heddle/report/profile/kernel_class.h"

namespace heddle {
namespace {

struct Event {
  std::string_view name;
  std::string_view category;
  // Process and thread, as in the file.
  std::pair<std::string, std::string> place;
  double begin;
  double duration;
};

std::string_view TextOf(JsonValue event, std::string_view key) {
  std::optional<JsonValue> value = event.Find(key);
  return value && value->is_string() ? value->string() : std::string_view();
}

std::string RawOf(JsonValue event, std::string_view key) {
  std::optional<JsonValue> value = event.Find(key);
  if (!value) return "";
  return std::string(value->is_string() ? value->string() : value->raw());
}

class Reader {
 public:
  explicit Reader(const JsonDocument& document) : document_(document) {}

  Result<Trace> Read() {
    std::optional<JsonValue> events = document_.root().Find("traceEvents");
    if (document_.root().kind() == JsonValue::Kind::kArray) events = document_.root();
    if (!events || events->kind() != JsonValue::Kind::kArray)
      return document_.Fail(document_.root(), "no list `traceEvents`: not a trace");
    for (JsonValue event : events->items()) HEDDLE_RETURN_IF_ERROR(Add(event));
    const std::vector<Event>& chosen = device_.empty() ? host_ : device_;
    if (chosen.empty()) return document_.Fail(*events, "the trace has neither kernels nor ops");
    return Finish(chosen);
  }

 private:
  Status Add(JsonValue value) {
    std::string_view phase = TextOf(value, "ph");
    std::pair<std::string, std::string> place = {RawOf(value, "pid"), RawOf(value, "tid")};
    if (phase == "M" && TextOf(value, "name") == "thread_name") {
      if (std::optional<JsonValue> args = value.Find("args"))
        thread_names_[place] = TextOf(*args, "name");
    }
    if (phase != "X") return Done{};
    Event event{TextOf(value, "name"), TextOf(value, "cat"), std::move(place), 0, 0};
    bool on_device = event.category == "kernel" || event.category.starts_with("gpu_mem");
    // Spans of a simulation have the family of their op as category.
    bool simulated = KernelClass(event.category, "") != "other" || event.category == "opaque";
    if (!on_device && !simulated && event.category != "cpu_op") return Done{};
    for (auto [key, to] : {std::pair{"ts", &event.begin}, std::pair{"dur", &event.duration}}) {
      std::optional<JsonValue> number = value.Find(key);
      if (!number) return document_.Fail(value, "the event has no `{}`", key);
      if (!number->is_number())
        return document_.Fail(*number, "`{}` is {}, expected a number", key, Describe(*number));
      *to = number->number();
    }
    constexpr double kLongest = 1e15;
    if (std::abs(event.begin) > kLongest || event.duration < 0 || event.duration > kLongest)
      return document_.Fail(value, "the event begins at {} us and takes {} us", event.begin,
                            event.duration);
    (on_device ? device_ : host_).push_back(std::move(event));
    return Done{};
  }

  Trace Finish(std::vector<Event> events) const {
    // A longer event first: it calls the shorter ones.
    std::ranges::stable_sort(events, [](const Event& a, const Event& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.duration > b.duration;
    });
    const double first = events[0].begin;
    auto nanos = [&](double micros) { return Nanos{std::llround((micros - first) * 1e3)}; };
    Trace trace;
    std::map<std::pair<std::string, std::string>, size_t> lanes;
    std::vector<Nanos> until;
    for (const Event& event : events) {
      auto [at, is_new] = lanes.try_emplace(event.place, lanes.size());
      if (is_new) {
        trace.lanes.push_back(LaneName(event.place));
        until.push_back({});
      }
      TraceSpan span{std::string(event.name), KernelClass(event.category, event.name), at->second,
                     nanos(event.begin), nanos(event.begin + event.duration)};
      // Another op of this thread called it.
      if (event.category == "cpu_op" && span.begin < until[span.lane]) continue;
      until[span.lane] = std::max(until[span.lane], span.end);
      trace.spans.push_back(std::move(span));
    }
    return trace;
  }

  std::string LaneName(const std::pair<std::string, std::string>& place) const {
    if (!device_.empty()) return "stream " + place.second;
    auto named = thread_names_.find(place);
    return named != thread_names_.end() ? std::string(named->second) : "thread " + place.second;
  }

  const JsonDocument& document_;
  std::map<std::pair<std::string, std::string>, std::string_view> thread_names_;
  std::vector<Event> device_;
  std::vector<Event> host_;
};

}  // namespace

Result<Trace> ReadTrace(const std::string& path) {
  HEDDLE_TRY(std::string text, ReadFile(path));
  HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(std::move(text), path, Diag::kJson));
  HEDDLE_TRY(Trace trace, Reader(document).Read());
  trace.file = path.substr(path.rfind('/') + 1);
  return trace;
}

}  // namespace heddle
