#include "heddle/cost/schedule_costs.h"

#include <unordered_map>

#include <nlohmann/json.hpp>

#include "heddle/cost/cluster/rate.h"

namespace heddle {
namespace {

constexpr double kNanosPerMilli = 1e6;

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
    if (entries[i].owner != i && !entries[i].is_item) total[entries[i].owner] += entries[i].ms;
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].is_item) total[entries[i].owner] += entries[i].ms;
  }
  MeasuredCosts costs;
  costs.file = file;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (entry.source_name.empty() || entry.nameless) continue;
    costs.nodes[entry.source_name] = WholeNanos(total[entry.owner] * kNanosPerMilli);
  }
  return costs;
}

}  // namespace heddle
