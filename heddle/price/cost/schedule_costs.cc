#include "heddle/price/cost/schedule_costs.h"

#include <unordered_map>

#include "heddle/price/cost/cluster/rate.h"

namespace heddle::price {
namespace {

constexpr double kLaunchMs = 1e-3;

struct Entry {
  std::string source_name;
  bool is_item = false;
  // Has no value in the graph: an input, or a call that is known by its items' names.
  bool nameless = false;
  // Summed before rounding.
  double ms = 0;
  // The entry that gets its cost; itself if it is a node of the printed graph.
  size_t owner = 0;
  std::string first_input;
};

// The text of a field; empty if it is missing or not text.
std::string TextIn(JsonValue object, std::string_view key) {
  std::optional<JsonValue> value = object.Find(key);
  return value && value->is_string() ? std::string(value->string()) : std::string();
}

// Whether the number exists and is in [least, limit).
bool IsBetween(std::optional<JsonValue> value, double least, double limit) {
  return value && value->is_number() && value->number() >= least && value->number() < limit;
}

class ScheduleCostsReader {
 public:
  explicit ScheduleCostsReader(const JsonDocument& document) : document_(document) {}

  Result<std::vector<Entry>> ReadEntries() const {
    std::vector<Entry> entries;
    std::unordered_map<std::string, size_t> by_name;
    // Entries without a name in the printed graph whose reader has not been found yet.
    std::unordered_map<std::string, std::vector<size_t>> waiting;
    for (JsonValue node : document_.root().Find("nodes")->items()) {
      size_t i = entries.size();
      std::string name = TextIn(node, "name");
      if (name.empty()) return Wrong(node, "has no `name`");
      std::optional<JsonValue> ms = node.Find("ms0");
      if (!IsBetween(ms, 0, 1e9)) return Wrong(node, "has no time `ms0` in milliseconds");
      std::string op = TextIn(node, "op");
      bool output = op == "output";
      Entry entry{
          TextIn(node, "source_name"), op == "getitem", op == "placeholder", ms->number(), i, {}};
      std::optional<JsonValue> args = node.Find("args");
      if (!args || !args->is_array()) return Wrong(node, "has no list `args`");
      for (JsonValue arg : args->items()) {
        if (!arg.is_string()) return Wrong(node, "has an input that is not a name");
        std::string input(arg.string());
        if (!by_name.contains(input))
          return Wrong(node, "reads a value that no earlier node defines");
        if (entry.first_input.empty()) entry.first_input = input;
        auto wait = waiting.find(input);
        if (wait == waiting.end() || output) continue;
        for (size_t unowned : wait->second) entries[unowned].owner = i;
        waiting.erase(wait);
      }
      if (entry.is_item) {
        auto source = by_name.find(entry.first_input);
        if (source == by_name.end()) return Wrong(node, "is an item without a call");
        entry.owner = source->second;
        entries[source->second].nameless = true;
      } else if (entry.source_name.empty() && !output) {
        waiting[name].push_back(i);
      }
      by_name[name] = i;
      entries.push_back(std::move(entry));
    }
    return entries;
  }

  // A file without curves cannot price buckets.
  Result<std::vector<Curve>> ReadCurves() const {
    std::vector<Curve> curves;
    std::optional<JsonValue> model = document_.root().Find("torch_network_model");
    bool ampere = model && TextIn(*model, "gpu_type") == "AMPERE";
    TorchNetwork network = ampere ? TorchNetwork::kAmpere : TorchNetwork::kHopper;
    std::optional<JsonValue> list = document_.root().Find("curves");
    if (!list) return curves;
    for (JsonValue item : list->items()) {
      HEDDLE_TRY(Curve curve, ReadCurve(item, network));
      curves.push_back(std::move(curve));
    }
    return curves;
  }

  // Bandwidth of the device's memory, in GB/s.
  Result<double> ReadRate() const {
    constexpr double kHopper = 3352;
    std::optional<JsonValue> rate = document_.root().Find("dram_gbps");
    if (!rate) return kHopper;
    if (IsBetween(rate, 0, 1e9) && rate->number() > 0) return rate->number();
    return Wrong(*rate,
                 fmt::format("is {}, expected the bandwidth of a memory in GB/s", Shown(*rate)));
  }

 private:
  Failure Wrong(JsonValue at, std::string_view message) const {
    Failure failure = document_.Fail(at, "`{}` {}", at.path(), message);
    failure.diagnostics[0].kind = Diag::kCostsFile;
    return failure;
  }

  Result<Curve> ReadCurve(JsonValue json, TorchNetwork network) const {
    std::string kind = TextIn(json, "collective");
    std::optional<JsonValue> group = json.Find("group");
    std::optional<JsonValue> ranks = json.Find("group_size");
    if (kind.empty() || !group || !group->is_string() || !ranks || !ranks->is_int())
      return Wrong(json, "lacks `collective`, `group` or `group_size`");
    std::optional<CollectiveKind> known = ParseCollectiveKind(kind);
    if (!known) return Wrong(json, "has an unknown collective");
    Curve curve;
    curve.kind = *known;
    curve.over = group->string();
    curve.ranks = ranks->integer();
    if (curve.ranks < 1 || curve.ranks > kMostRanks)
      return Wrong(json, "has a `group_size` that no cluster has");
    curve.network = network;
    std::optional<JsonValue> table = json.Find("table_mib_ms");
    curve.interpolation = table ? Interpolation::kColumns : Interpolation::kTorch;
    if (!table) return curve;
    for (JsonValue point : table->items()) {
      std::vector<JsonValue> pair;
      for (JsonValue number : point.items()) pair.push_back(number);
      if (pair.size() != 2 || !IsBetween(pair[0], 0, 1e7) || !(pair[0].number() > 0) ||
          !IsBetween(pair[1], 0, 1e9))
        return Wrong(json, "has a point that is not [MiB, ms] with both above 0");
      Bytes bytes{static_cast<int64_t>(pair[0].number() * (1 << 20))};
      if (!curve.points.empty() && curve.points.back().bytes >= bytes)
        return Wrong(json, "has points whose sizes do not increase");
      curve.points.push_back({bytes, WholeNanos(pair[1].number() * kNanosPerMilli)});
    }
    if (curve.points.size() < 2) return Wrong(json, "has fewer than two points");
    return curve;
  }

  const JsonDocument& document_;
};

}  // namespace

bool IsScheduleCosts(const JsonDocument& document) {
  std::optional<JsonValue> nodes = document.root().Find("nodes");
  return nodes && nodes->is_array() && !document.root().Find("heddle");
}

Result<MeasuredCosts> ReadScheduleCosts(const JsonDocument& document, const std::string& file) {
  ScheduleCostsReader reader(document);
  HEDDLE_TRY(std::vector<Entry> entries, reader.ReadEntries());
  std::vector<double> total(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) total[i] = entries[i].ms;
  // Owners come after nodes without a name, and before items.
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].owner != i && !entries[i].is_item)
      total[entries[i].owner] += entries[i].ms + kLaunchMs;
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].is_item) total[entries[i].owner] += entries[i].ms + kLaunchMs;
  }
  MeasuredCosts costs;
  costs.file = file;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (entry.source_name.empty() || entry.nameless) continue;
    costs.nodes[entry.source_name] = WholeNanos(total[entry.owner] * kNanosPerMilli);
    const std::string& call = entries[entry.owner].source_name;
    if (entry.is_item && !call.empty()) costs.call_of_item[entry.source_name] = call;
  }
  HEDDLE_TRY(costs.curves, reader.ReadCurves());
  costs.whole_graph = true;
  costs.rules = kAutoParallelRules;
  // The times of a call include its items.
  costs.rules->launch_per_result = false;
  costs.rules->packing = TimelineRules::Packing::kByKernels;
  HEDDLE_TRY(costs.rules->copy_rate.per_nano, reader.ReadRate());
  return costs;
}

}  // namespace heddle::price
