#include "heddle/price/cost/cluster/cluster.h"

#include <algorithm>

#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"

namespace heddle::price {

std::string_view Name(DeviceType type) { return type == DeviceType::kCuda ? "cuda" : "cpu"; }

std::string_view Name(Execution execution) {
  constexpr std::string_view kNames[] = {"heddle", "eager", "compiled"};
  return kNames[static_cast<size_t>(execution)];
}

std::span<const NamedCluster> BuiltInClusters() {
  static constexpr NamedCluster kClusters[] = {
#include "heddle/price/cost/cluster/clusters.inc"
  };
  return kClusters;
}

bool IsClusterPath(std::string_view name_or_path) {
  return name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
}

Result<Cluster> LoadCluster(const std::string& name_or_path) {
  if (IsClusterPath(name_or_path)) {
    HEDDLE_TRY(std::string text, ReadFile(name_or_path));
    return ParseCluster(text, name_or_path);
  }
  std::vector<std::string_view> names;
  for (const NamedCluster& cluster : BuiltInClusters()) {
    if (cluster.name == name_or_path) return ParseCluster(cluster.text, name_or_path + ".json");
    names.push_back(cluster.name);
  }
  return Error(Diag::kUnknownCluster,
               "no cluster is named `{}`{}; use {}, or a path to a JSON file", name_or_path,
               NearestHint(name_or_path, names), Join(names, ", "));
}

std::optional<Cluster> ClusterOfDevice(std::string_view name) {
  for (const NamedCluster& named : BuiltInClusters()) {
    Result<Cluster> cluster = ParseCluster(named.text, std::string(named.name));
    if (cluster.ok() &&
        std::ranges::find(cluster->device.names, name) != cluster->device.names.end())
      return *std::move(cluster);
  }
  return std::nullopt;
}

}  // namespace heddle::price
