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

// In microseconds.
constexpr double kLongest = 1e15;
constexpr int64_t kMostRanks = 1 << 20;
constexpr int64_t kMostBytes = int64_t{1} << 50;

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

// Spans that c10d and Heddle record on the host.
constexpr std::string_view kGloo = "gloo:";
constexpr std::string_view kGather = "heddle:all_gather";
constexpr std::string_view kWait = "heddle:wait";

bool IsMessage(std::string_view name) {
  return name == "gloo:send" || name.starts_with("gloo:recv");
}
bool IsCollective(const Event& event) {
  return event.category == "user_annotation" &&
         (event.name.starts_with(kGloo) || event.name == kGather);
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
    HEDDLE_RETURN_IF_ERROR(AddFacts());
    for (JsonValue event : events->items()) HEDDLE_RETURN_IF_ERROR(Add(event));
    if (device_.empty() && wanted_ == TraceWork::kDevice)
      return document_.Fail(*events,
                            "the trace has no GPU kernels; record it with the activities of CUDA");
    const std::vector<Event>& chosen = device_.empty() ? host_ : device_;
    if (chosen.empty()) return document_.Fail(*events, "the trace has neither kernels nor ops");
    return Finish(chosen);
  }

 private:
  // The facts that PyTorch's profiler and Heddle write outside of the events.
  Status AddFacts() {
    JsonMistakes mistakes(document_, Diag::kJson);
    JsonValue root = document_.root();
    if (std::optional<JsonValue> base = root.Find("baseTimeNanoseconds")) {
      if (!base->is_int()) mistakes.Add(*base, "expected a whole number");
      if (base->is_int()) base_ = Nanos{base->integer()};
    }
    if (std::optional<JsonValue> found = root.Find("distributedInfo")) {
      JsonFields fields(*found, mistakes);
      rank_.emplace();
      rank_->world_size = fields.Count("world_size", 1, kMostRanks);
      rank_->rank = fields.Count("rank", 0, rank_->world_size - 1);
    }
    if (std::optional<JsonValue> found = root.Find("heddle"); found && rank_) {
      JsonFields fields(*found, mistakes);
      rank_->run = fields.Text("run");
      held_ = Bytes{fields.Count("held_bytes", 0, kMostBytes)};
    }
    return mistakes.empty() ? Status(Done{}) : Status(mistakes.failure());
  }

  // A change of memory: an event of an allocator, or a counter of a simulation.
  Status AddMemory(JsonValue value, std::string_view key) {
    std::optional<JsonValue> args = value.Find("args");
    std::optional<JsonValue> time = value.Find("ts");
    std::optional<JsonValue> bytes = args ? args->Find(key) : std::nullopt;
    if (!bytes) return Done{};
    if (!time || !time->is_number() || std::abs(time->number()) > kLongest || !bytes->is_int() ||
        bytes->integer() < 0 || bytes->integer() > kMostBytes)
      return document_.Fail(value, "a change of memory needs the time `ts` and bytes in `args/{}`",
                            key);
    std::optional<JsonValue> type = args->Find("Device Type");
    // 0 is the host.
    bool on_host = type && type->is_int() && type->integer() == 0;
    (on_host ? host_memory_ : device_memory_).emplace_back(time->number(), bytes->integer());
    return Done{};
  }

  Status Add(JsonValue value) {
    if (!value.is_object())
      return document_.Fail(value, "an event is {}, expected an object", Describe(value));
    std::string_view phase = TextOf(value, "ph");
    std::pair<std::string, std::string> place = {RawOf(value, "pid"), RawOf(value, "tid")};
    if (phase == "M" && TextOf(value, "name") == "thread_name") {
      if (std::optional<JsonValue> args = value.Find("args"))
        thread_names_[place] = TextOf(*args, "name");
    }
    if (phase == "i" && TextOf(value, "name") == "[memory]")
      return AddMemory(value, "Total Allocated");
    if (phase == "C" && TextOf(value, "name") == "memory") return AddMemory(value, "bytes");
    if (phase != "X") return Done{};
    Event event{TextOf(value, "name"), TextOf(value, "cat"), std::move(place), 0, 0};
    // The device repeats the marks of the host.
    bool marks = event.category == "user_annotation" && event.name.starts_with("ProfilerStep#");
    bool on_device = event.category == "kernel" || event.category.starts_with("gpu_mem");
    // Spans of a simulation have the family of their op as category.
    bool simulated = KernelClass(event.category, "") != "other" || event.category == "opaque";
    bool waits = event.category == "user_annotation" && event.name == kWait;
    if (waits) event.category = "wait";
    if (!on_device && !simulated && !marks && !waits && !IsCollective(event) &&
        event.category != "cpu_op")
      return Done{};
    for (auto [key, to] : {std::pair{"ts", &event.begin}, std::pair{"dur", &event.duration}}) {
      std::optional<JsonValue> number = value.Find(key);
      if (!number) return document_.Fail(value, "the event has no `{}`", key);
      if (!number->is_number())
        return document_.Fail(*number, "`{}` is {}, expected a number", key, Describe(*number));
      *to = number->number();
    }
    if (std::abs(event.begin) > kLongest || event.duration < 0 || event.duration > kLongest)
      return document_.Fail(value, "the event begins at {} us and takes {} us", event.begin,
                            event.duration);
    if (marks) {
      if (std::ranges::find(marked_, event.name, &Event::name) == marked_.end())
        marked_.push_back(std::move(event));
      return Done{};
    }
    (on_device ? device_ : host_).push_back(std::move(event));
    return Done{};
  }

  Trace Finish(std::vector<Event> events) {
    // A longer event first: it calls the shorter ones.
    auto before = [](const Event& a, const Event& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.duration > b.duration;
    };
    std::ranges::stable_sort(events, before);
    std::ranges::stable_sort(marked_, before);
    const double first = events[0].begin;
    auto nanos = [&](double micros) { return Nanos{std::llround((micros - first) * 1e3)}; };
    Trace trace;
    trace.on_device = !device_.empty();
    trace.rank = rank_;
    trace.origin = base_ + Nanos{std::llround(first * 1e3)};
    for (const Event& mark : marked_)
      trace.marked.push_back(
          {std::string(mark.name), nanos(mark.begin), nanos(mark.begin + mark.duration)});
    Lanes lanes{trace, {}, {}};
    // The thread that runs the steps is the first lane.
    if (!trace.on_device && !marked_.empty())
      lanes.At(marked_[0].place, LaneName(marked_[0].place));
    for (const Event& event : events) {
      TraceSpan span{std::string(event.name), KernelClass(event.category, event.name), 0,
                     nanos(event.begin), nanos(event.begin + event.duration)};
      if (IsCollective(event)) {
        Nanos& gathered = gathered_[event.place];
        if (event.name == kGather) gathered = std::max(gathered, span.end);
        // A message of a gather.
        if (IsMessage(event.name) && span.end <= gathered) continue;
        // Its ops copy and add on a thread of the process group.
        if (event.name.starts_with(kGloo) && !IsMessage(event.name))
          lanes.Cover(event.place, LaneName(event.place), span.end);
        span.kernel_class = "collective";
        span.lane = lanes.Free("collectives", span);
      } else {
        span.lane = lanes.At(event.place, LaneName(event.place));
        // Another op of this thread called it.
        if (event.category == "cpu_op" && span.begin < lanes.until[span.lane]) continue;
        lanes.until[span.lane] = std::max(lanes.until[span.lane], span.end);
      }
      trace.spans.push_back(std::move(span));
    }
    AddMemoryTo(trace, first);
    return trace;
  }

  void AddMemoryTo(Trace& trace, double first) {
    bool of_device = !device_memory_.empty();
    auto& changes = of_device ? device_memory_ : host_memory_;
    std::ranges::stable_sort(changes, {}, [](const auto& change) { return change.first; });
    for (auto [time, bytes] : changes)
      trace.memory.push_back({Nanos{std::llround((time - first) * 1e3)},
                              Bytes{bytes} + (of_device ? Bytes() : held_)});
  }

  // Lanes by thread or stream, and lanes of overlapping spans.
  struct Lanes {
    Trace& trace;
    std::map<std::pair<std::string, std::string>, size_t> by_place;
    // When the spans of each lane end.
    std::vector<Nanos> until;

    size_t Add(std::string name) {
      trace.lanes.push_back(std::move(name));
      until.push_back({});
      return until.size() - 1;
    }
    size_t At(const std::pair<std::string, std::string>& place, std::string name) {
      auto [at, is_new] = by_place.try_emplace(place, until.size());
      if (is_new) Add(std::move(name));
      return at->second;
    }
    void Cover(const std::pair<std::string, std::string>& place, std::string name, Nanos end) {
      Nanos& last = until[At(place, std::move(name))];
      last = std::max(last, end);
    }
    // The first lane of this kind where nothing runs when the span begins.
    size_t Free(const std::string& kind, const TraceSpan& span) {
      for (int number = 1;; ++number) {
        std::string name = number == 1 ? kind : fmt::format("{} {}", kind, number);
        size_t lane = At({name, ""}, name);
        if (until[lane] > span.begin) continue;
        until[lane] = span.end;
        return lane;
      }
    }
  };

  std::string LaneName(const std::pair<std::string, std::string>& place) const {
    if (!device_.empty()) return "stream " + place.second;
    auto named = thread_names_.find(place);
    return named != thread_names_.end() ? std::string(named->second) : "thread " + place.second;
  }

  const JsonDocument& document_;
  TraceWork wanted_;
  std::optional<TracedRank> rank_;
  Nanos base_;
  Bytes held_;
  // Time and bytes.
  std::vector<std::pair<double, int64_t>> host_memory_;
  std::vector<std::pair<double, int64_t>> device_memory_;
  std::vector<Event> marked_;
  // By thread: the end of the last gather.
  std::map<std::pair<std::string, std::string>, Nanos> gathered_;
  std::map<std::pair<std::string, std::string>, std::string_view> thread_names_;
  std::vector<Event> device_;
  std::vector<Event> host_;
};

TracedSteps MarkedSteps(const Trace& trace) {
  TracedSteps steps;
  for (const TraceMark& mark : trace.marked) steps.edges.push_back(mark.begin);
  steps.edges.push_back(trace.marked.back().end);
  return steps;
}

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

std::optional<Bytes> Trace::PeakMemory() const {
  std::optional<Bytes> peak;
  for (const TracedMemory& change : memory) peak = std::max(peak.value_or(Bytes()), change.bytes);
  return peak;
}

TracedSteps FindSteps(const Trace& trace) {
  if (!trace.on_device && !trace.marked.empty()) return MarkedSteps(trace);
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
