#include "heddle/cost/schedule_costs.h"

#include <unordered_map>

#include <nlohmann/json.hpp>

#include "heddle/cost/cluster/rate.h"

namespace heddle {
namespace {

constexpr double kLaunchMs = 1e-3;

struct Entry {
  std::string source_name;
  bool is_item = false;
  // Not a value of the graph that a node makes: an input, or a call that goes by the names of its items.
  bool nameless = false;
  // Summed up before they are rounded.
  double ms = 0;
  // Where its cost goes; itself if it is a node of the printed graph.
  size_t owner = 0;
  std::string first_input;
};

Failure Wrong(const std::string& file, size_t node, std::string_view what) {
  Failure failure = Error(Diag::kCostsFile, "`nodes[{}]` {}", node, what);
  failure.diagnostics[0].file = file;
  return failure;
}

Result<std::vector<Entry>> ReadEntries(const nlohmann::json& nodes, const std::string& file) {
  std::vector<Entry> entries;
  std::unordered_map<std::string, size_t> by_name;
  // Nodes without a name in the printed graph that nothing has read yet.
  std::unordered_map<std::string, std::vector<size_t>> waiting;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const nlohmann::json& node = nodes[i];
    auto text = [&](const char* key) {
      auto at = node.find(key);
      return at != node.end() && at->is_string() ? at->get<std::string>() : std::string();
    };
    if (!node.is_object() || text("name").empty()) return Wrong(file, i, "has no `name`");
    auto ms = node.find("ms0");
    if (ms == node.end() || !ms->is_number() ||
        !(ms->get<double>() >= 0 && ms->get<double>() < 1e9))
      return Wrong(file, i, "has no time `ms0` in milliseconds");
    Entry entry{text("source_name"),
                text("op") == "getitem",
                text("op") == "placeholder",
                ms->get<double>(),
                i,
                {}};
    auto args = node.find("args");
    bool output = text("op") == "output";
    if (args == node.end() || !args->is_array()) return Wrong(file, i, "has no list `args`");
    for (const nlohmann::json& arg : *args) {
      if (!arg.is_string()) return Wrong(file, i, "has an input that is not a name");
      auto name = arg.get<std::string>();
      if (!by_name.contains(name)) return Wrong(file, i, "reads what no node before it makes");
      if (entry.first_input.empty()) entry.first_input = name;
      auto wait = waiting.find(name);
      if (wait == waiting.end() || output) continue;
      for (size_t unowned : wait->second) entries[unowned].owner = i;
      waiting.erase(wait);
    }
    if (entry.is_item) {
      auto source = by_name.find(entry.first_input);
      if (source == by_name.end()) return Wrong(file, i, "is an item of nothing");
      entry.owner = source->second;
      entries[source->second].nameless = true;
    } else if (entry.source_name.empty() && !output) {
      waiting[text("name")].push_back(i);
    }
    by_name[text("name")] = i;
    entries.push_back(std::move(entry));
  }
  return entries;
}

Failure WrongCurve(const std::string& file, size_t curve, std::string_view what) {
  Failure failure = Error(Diag::kCostsFile, "`curves[{}]` {}", curve, what);
  failure.diagnostics[0].file = file;
  return failure;
}

Result<Curve> ReadCurve(const nlohmann::json& json, TorchNetwork network, size_t index,
                        const std::string& file) {
  auto kind = json.is_object() ? json.find("collective") : json.end();
  auto group = json.is_object() ? json.find("group") : json.end();
  auto ranks = json.is_object() ? json.find("group_size") : json.end();
  if (kind == json.end() || !kind->is_string() || group == json.end() || !group->is_string() ||
      ranks == json.end() || !ranks->is_number_integer())
    return WrongCurve(file, index, "lacks `collective`, `group` or `group_size`");
  std::optional<CollectiveKind> known = ParseCollectiveKind(kind->get<std::string>());
  if (!known) return WrongCurve(file, index, "is of no collective that is known");
  Curve curve;
  curve.kind = *known;
  curve.over = group->get<std::string>();
  curve.ranks = ranks->get<int64_t>();
  if (curve.ranks < 1 || curve.ranks > kMostRanks)
    return WrongCurve(file, index, "has a `group_size` that no cluster has");
  curve.network = network;
  auto table = json.find("table_mib_ms");
  curve.interpolation = table == json.end() ? Interpolation::kTorch : Interpolation::kColumns;
  if (table == json.end()) return curve;
  for (const nlohmann::json& point : table->is_array() ? *table : nlohmann::json::array()) {
    if (!point.is_array() || point.size() != 2 || !point[0].is_number() || !point[1].is_number() ||
        !(point[0].get<double>() > 0 && point[0].get<double>() < 1e7) ||
        !(point[1].get<double>() >= 0 && point[1].get<double>() < 1e9))
      return WrongCurve(file, index, "has a point that is not [MiB, ms], both above nothing");
    Bytes bytes{static_cast<int64_t>(point[0].get<double>() * (1 << 20))};
    if (!curve.points.empty() && curve.points.back().bytes >= bytes)
      return WrongCurve(file, index, "has points whose sizes do not rise");
    curve.points.push_back({bytes, WholeNanos(point[1].get<double>() * kNanosPerMilli)});
  }
  if (curve.points.size() < 2) return WrongCurve(file, index, "has less than two points");
  return curve;
}

// A file without curves prices no buckets.
Result<std::vector<Curve>> ReadCurves(const nlohmann::json& json, const std::string& file) {
  auto list = json.find("curves");
  std::vector<Curve> curves;
  if (list == json.end()) return curves;
  TorchNetwork network = TorchNetwork::kHopper;
  auto model = json.find("torch_network_model");
  if (model != json.end() && model->is_object() && model->contains("gpu_type") &&
      (*model)["gpu_type"] == "AMPERE")
    network = TorchNetwork::kAmpere;
  for (size_t i = 0; list->is_array() && i < list->size(); ++i) {
    HEDDLE_TRY(Curve curve, ReadCurve((*list)[i], network, i, file));
    curves.push_back(std::move(curve));
  }
  return curves;
}

// Of the device's memory, in GB/s.
Result<double> ReadRate(const nlohmann::json& json, const std::string& file) {
  constexpr double kHopper = 3352;
  auto rate = json.find("dram_gbps");
  if (rate == json.end()) return kHopper;
  if (rate->is_number() && rate->get<double>() > 0 && rate->get<double>() < 1e9)
    return rate->get<double>();
  Failure failure = Error(Diag::kCostsFile, "`dram_gbps` is no rate of a memory");
  failure.diagnostics[0].file = file;
  return failure;
}

}  // namespace

bool IsScheduleCosts(const nlohmann::json& json) {
  auto nodes = json.is_object() ? json.find("nodes") : json.end();
  return json.is_object() && !json.contains("heddle") && nodes != json.end() && nodes->is_array();
}

Result<MeasuredCosts> ReadScheduleCosts(const nlohmann::json& json, const std::string& file) {
  HEDDLE_TRY(std::vector<Entry> entries, ReadEntries(json["nodes"], file));
  std::vector<double> total(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) total[i] = entries[i].ms;
  // Owners stand behind nodes without a name, and before items.
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].owner != i && !entries[i].is_item)
      total[entries[i].owner] += entries[i].ms + kLaunchMs;
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].is_item) total[entries[i].owner] += entries[i].ms + kLaunchMs;
  }
  MeasuredCosts costs;
  costs.file = file;
  StudyFacts study;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (entry.source_name.empty() || entry.nameless) continue;
    costs.nodes[entry.source_name] = WholeNanos(total[entry.owner] * kNanosPerMilli);
    const std::string& call = entries[entry.owner].source_name;
    if (entry.is_item && !call.empty()) study.call_of_item[entry.source_name] = call;
  }
  HEDDLE_TRY(costs.curves, ReadCurves(json, file));
  HEDDLE_TRY(study.memory.per_nano, ReadRate(json, file));
  costs.study = std::move(study);
  return costs;
}

}  // namespace heddle
