#include "heddle/price/trace/trace_file.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "heddle/core/base/file.h"
#include "heddle/core/base/gzip.h"
#include "heddle/core/base/json_fields.h"
#include "heddle/price/trace/kernel_class.h"

namespace heddle::price {
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
  Reader(const JsonDocument& document, TraceWork wanted) : document_(document), wanted_(wanted) {}

  Result<Trace> Read() {
    std::optional<JsonValue> events = document_.root().Find("traceEvents");
    if (document_.root().kind() == JsonValue::Kind::kArray) events = document_.root();
    if (!events || events->kind() != JsonValue::Kind::kArray)
      return document_.Fail(document_.root(), "no list `traceEvents`: not a trace");
    if (std::optional<JsonValue> unit = document_.root().Find("displayTimeUnit")) {
      bool known = unit->is_string() && (unit->string() == "ms" || unit->string() == "ns");
      if (!known) return document_.Fail(*unit, "`displayTimeUnit` is not `ms` or `ns`");
    }
    for (JsonValue event : events->items()) HEDDLE_RETURN_IF_ERROR(Add(event));
    if (device_.empty() && wanted_ == TraceWork::kDevice)
      return document_.Fail(*events,
                            "the trace has no GPU kernels; record it with the activities of CUDA");
    const std::vector<Event>& chosen = device_.empty() ? host_ : device_;
    if (chosen.empty()) return document_.Fail(*events, "the trace has neither kernels nor ops");
    return Finish(chosen);
  }

 private:
  Status Add(JsonValue value) {
    if (!value.is_object())
      return document_.Fail(value, "an event is {}, expected an object", Describe(value));
    std::string_view phase = TextOf(value, "ph");
    std::pair<std::string, std::string> place = {RawOf(value, "pid"), RawOf(value, "tid")};
    if (phase == "M" && TextOf(value, "name") == "thread_name") {
      if (std::optional<JsonValue> args = value.Find("args"))
        thread_names_[place] = TextOf(*args, "name");
    }
    if (phase != "X") return Done{};
    Event event{TextOf(value, "name"), TextOf(value, "cat"), std::move(place), 0, 0};
    // The device repeats the marks of the host.
    bool marks = event.category == "user_annotation" && event.name.starts_with("ProfilerStep#");
    bool on_device = event.category == "kernel" || event.category.starts_with("gpu_mem");
    // Spans of a simulation have the family of their op as category.
    bool simulated = KernelClass(event.category, "") != "other" || event.category == "opaque";
    if (!on_device && !simulated && !marks && event.category != "cpu_op") return Done{};
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
    if (marks) {
      marked_.emplace(event.name, Nanos{std::llround(event.duration * 1e3)});
      return Done{};
    }
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
    trace.on_device = !device_.empty();
    for (const auto& [name, time] : marked_) trace.marked.push_back(time);
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
  TraceWork wanted_;
  std::map<std::string_view, Nanos> marked_;
  std::map<std::pair<std::string, std::string>, std::string_view> thread_names_;
  std::vector<Event> device_;
  std::vector<Event> host_;
};

// The lane with the most work.
size_t BusiestLane(const Trace& trace) {
  std::vector<Nanos> busy(trace.lanes.size());
  for (const TraceSpan& span : trace.spans) busy[span.lane] += span.end - span.begin;
  return static_cast<size_t>(std::ranges::max_element(busy) - busy.begin());
}

// The length of the sequence that the list repeats up to its end, at least twice and over at least
// half of the list. A list without such a sequence has its own length.
size_t PeriodAtEnd(const std::vector<std::string_view>& names) {
  // The failure function of Knuth, Morris and Pratt, of the reversed list.
  std::vector<std::string_view> reversed(names.rbegin(), names.rend());
  std::vector<size_t> border(reversed.size());
  size_t period = names.size();
  for (size_t i = 1; i < reversed.size(); ++i) {
    size_t k = border[i - 1];
    while (k > 0 && reversed[i] != reversed[k]) k = border[k - 1];
    border[i] = k + (reversed[i] == reversed[k] ? 1 : 0);
    size_t length = i + 1;
    size_t repeated = length - border[i];
    if (2 * length >= names.size() && 2 * repeated <= length) period = repeated;
  }
  return period;
}

TracedSteps EqualParts(const Trace& trace) {
  TracedSteps steps;
  auto count = static_cast<int64_t>(trace.marked.size());
  for (int64_t i = 0; i <= count; ++i) steps.edges.push_back({trace.end().value * i / count});
  return steps;
}

}  // namespace

Nanos Trace::end() const {
  Nanos last;
  for (const TraceSpan& span : spans) last = std::max(last, span.end);
  return last;
}

Result<Trace> ParseTrace(std::string text, const std::string& file, TraceWork wanted) {
  HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(std::move(text), file, Diag::kJson));
  HEDDLE_TRY(Trace trace, Reader(document, wanted).Read());
  trace.file = file.substr(file.rfind('/') + 1);
  return trace;
}

Result<Trace> ReadTrace(const std::string& path) {
  HEDDLE_TRY(std::string text, ReadFile(path));
  if (IsGzip(text)) {
    HEDDLE_TRY(text, Gunzip(text, static_cast<size_t>(kMaxFileBytes.value)));
  }
  return ParseTrace(std::move(text), path);
}

TracedSteps FindSteps(const Trace& trace) {
  size_t lane = BusiestLane(trace);
  std::vector<std::string_view> names;
  std::vector<Nanos> begins;
  for (const TraceSpan& span : trace.spans) {
    // The host copies batches and losses at any time.
    if (span.lane != lane || span.kernel_class == "copy") continue;
    names.push_back(span.name);
    begins.push_back(span.begin);
  }
  size_t period = PeriodAtEnd(names);
  if (period == names.size() && trace.marked.size() > 1) return EqualParts(trace);
  TracedSteps steps;
  for (size_t at = names.size() % period; at < names.size(); at += period)
    steps.edges.push_back(begins[at]);
  steps.edges.push_back(trace.end());
  return steps;
}

}  // namespace heddle::price
