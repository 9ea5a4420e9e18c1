#include "heddle/price/calibrate/calibrate.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "heddle/core/base/text.h"
#include "heddle/core/ops/families.h"
#include "heddle/price/cost/comm/native_model.h"
#include "heddle/price/cost/kernel_time.h"

namespace heddle::price {
namespace {

using Times = std::array<Nanos, kKernelClassCount>;

constexpr double kNanosPerMicro = 1000;
// Sizes at which latency is most of the time, and at which it is negligible.
constexpr Bytes kSmall{1 << 16};
constexpr Bytes kLarge{1 << 26};

double Ratio(Nanos above, Nanos below) {
  return static_cast<double>(above.value) / static_cast<double>(below.value);
}

class Calibrator {
 public:
  Calibrator(const CalibrationInput& input, const std::string& file, nlohmann::ordered_json& json)
      : input_(input), file_(file), json_(json) {}

  Result<Calibration> Run() {
    if (input_.step) HEDDLE_RETURN_IF_ERROR(FitKernels());
    for (const NcclTable& table : input_.tables) HEDDLE_RETURN_IF_ERROR(FitTable(table));
    return std::move(out_);
  }

 private:
  Result<Cluster> Parsed() const { return ParseCluster(json_.dump(), file_); }

  Result<Times> Predict() const {
    HEDDLE_TRY(Cluster cluster, Parsed());
    HEDDLE_TRY(CostModel model, CostModel::Make(std::move(cluster), input_.options));
    const Graph& graph = input_.module->graphs[0];
    HEDDLE_TRY(GraphCosts costs, model.Price(*input_.module, graph));
    Times times{};
    for (NodeId id : graph.nodes()) {
      const NodeCost& cost = costs.nodes[id];
      bool moves = cost.stream != NodeCost::kCompute;
      auto at =
          static_cast<size_t>(moves ? KernelClass::kCollectives : PricedAs(graph.op(id).family));
      times[at] += moves ? cost.pack + cost.collective.total() : cost.compute;
    }
    return times;
  }

  // Multiplies a share by `times`, but at most to 1.
  void Scale(nlohmann::ordered_json& object, const std::string& key, double times,
             const std::string& path) {
    if (object.is_null()) object = nlohmann::ordered_json::object();
    double before = object.value(key, 1.0);
    double after = before * times;
    if (after > 1) {
      if (after > 1.0005 && limited_.insert(path).second)
        out_.notes.push_back(fmt::format(
            "{} would be {:.3f}; a share is at most 1, so the file has 1", path, after));
      after = 1;
    }
    object[key] = after;
    json_["sources"][path] = input_.source;
  }

  // Predicted / measured; nullopt if one of them has no such kernel.
  std::optional<double> RatioOf(const Times& predicted, KernelClass one) const {
    auto at = static_cast<size_t>(one);
    const Times& measured = input_.step->busy;
    if (predicted[at].value == 0 || measured[at].value == 0) return std::nullopt;
    return Ratio(predicted[at], measured[at]);
  }

  Status FitKernels() {
    HEDDLE_TRY(Times before, Predict());
    Times after = before;
    // A figure scales a part of a class's time: launches, for example, take as long as before.
    constexpr int kRounds = 20;
    for (int round = 0; round < kRounds && (round == 0 || IsOff(after)); ++round) {
      HEDDLE_RETURN_IF_ERROR(FitClasses(after));
      HEDDLE_TRY(after, Predict());
    }
    const Times& measured = input_.step->busy;
    for (size_t i = 0; i < kKernelClassCount; ++i) {
      if (measured[i].value == 0 && before[i].value == 0) continue;
      out_.errors.push_back(
          {std::string(Name(static_cast<KernelClass>(i))), measured[i], before[i], after[i]});
    }
    return Done{};
  }

  // Whether a class with figures differs from its measured time by more than 0.1 %.
  bool IsOff(const Times& predicted) const {
    constexpr KernelClass kFitted[] = {KernelClass::kProducts, KernelClass::kAttention,
                                       KernelClass::kElements, KernelClass::kOptimizer};
    return std::ranges::any_of(kFitted, [&](KernelClass one) {
      return std::abs(RatioOf(predicted, one).value_or(1) - 1) > 0.001;
    });
  }

  Status FitClasses(const Times& predicted) {
    nlohmann::ordered_json& device = json_["device"];
    if (std::optional<double> times = RatioOf(predicted, KernelClass::kProducts))
      Scale(device, "sustained", *times, "device/sustained");
    // Attention is priced with the new sustained rate.
    HEDDLE_TRY(Times sustained, Predict());
    if (std::optional<double> times = RatioOf(sustained, KernelClass::kAttention))
      FitAttention(*times);
    if (std::optional<double> times = RatioOf(predicted, KernelClass::kElements))
      HEDDLE_RETURN_IF_ERROR(FitElements(*times));
    // AdamW is also priced with the rate of elements.
    HEDDLE_TRY(Times streamed, Predict());
    if (std::optional<double> times = RatioOf(streamed, KernelClass::kOptimizer))
      FitOptimizer(*times);
    return Done{};
  }

  void FitOptimizer(double times) {
    const Graph& graph = input_.module->graphs[0];
    std::set<std::string> names;
    for (NodeId id : graph.nodes()) {
      std::string_view name = graph.op(id).name();
      if (name.starts_with("aten.") && FamilyOf(graph.op(id)) == OpFamily::optimizer)
        names.emplace(name);
    }
    for (const std::string& name : names)
      Scale(json_["device"]["kernels"][name], "memory", times,
            fmt::format("device/kernels/{}/memory", name));
  }

  void FitAttention(double times) {
    const Graph& graph = input_.module->graphs[0];
    nlohmann::ordered_json& kernels = json_["device"]["kernels"];
    std::set<std::string> keys;
    for (NodeId id : graph.nodes()) {
      if (FamilyOf(graph.op(id)) != OpFamily::attention) continue;
      std::string name(AttentionKernel(graph.op(id)));
      keys.insert(kernels.contains(name) ? name : "attention");
    }
    for (const std::string& key : keys)
      Scale(kernels[key], "efficiency", times, fmt::format("device/kernels/{}/efficiency", key));
  }

  Status FitElements(double times) {
    HEDDLE_TRY(Cluster cluster, Parsed());
    const std::string name(Name(input_.options.execution));
    bool fuse = cluster.device.Under(input_.options.execution).fuse;
    const std::string key = fuse ? "fused_memory" : "memory";
    Scale(json_["device"]["execution"][name], key, times,
          fmt::format("device/execution/{}/{}", name, key));
    return Done{};
  }

  // The mean of predicted / measured over large sizes; 1 without any.
  static double MeanRatio(const NcclTable& table, const Cluster& cluster) {
    double sum = 0;
    int64_t count = 0;
    for (const NcclTable::Row& row : table.rows) {
      if (row.bytes < kLarge) continue;
      sum += Ratio(NativeTime(table.kind, row.bytes, table.group, cluster), row.time);
      ++count;
    }
    return count == 0 ? 1 : sum / static_cast<double>(count);
  }

  // The mean microseconds that small sizes take longer than predicted; 0 without any.
  static double MeanDelay(const NcclTable& table, const Cluster& cluster) {
    double sum = 0;
    int64_t count = 0;
    for (const NcclTable::Row& row : table.rows) {
      if (row.bytes > kSmall) continue;
      Nanos predicted = NativeTime(table.kind, row.bytes, table.group, cluster);
      sum += static_cast<double>((row.time - predicted).value) / kNanosPerMicro;
      ++count;
    }
    return count == 0 ? 0 : sum / static_cast<double>(count);
  }

  Status FitTable(const NcclTable& table) {
    HEDDLE_TRY(Cluster before, Parsed());
    const std::string link = table.group.nodes > 1 ? "network" : "node";
    double large = MeanRatio(table, before);
    for (size_t i = 0; i < json_["protocols"].size(); ++i)
      Scale(json_["protocols"][i][link], "efficiency", large, "protocols");
    HEDDLE_TRY(Cluster scaled, Parsed());
    double late = MeanDelay(table, scaled);
    for (nlohmann::ordered_json& protocol : json_["protocols"])
      protocol["base_us"] = std::max(0.0, protocol["base_us"].get<double>() + late);
    json_["sources"]["protocols"] = input_.source;
    HEDDLE_TRY(Cluster after, Parsed());
    for (const NcclTable::Row& row : table.rows) {
      auto time = [&](const Cluster& cluster) {
        return NativeTime(table.kind, row.bytes, table.group, cluster);
      };
      out_.errors.push_back({fmt::format("{} of {} on {}", Name(table.kind), Format(row.bytes),
                                         Counted(table.group.ranks, "rank")),
                             row.time, time(before), time(after)});
    }
    return Done{};
  }

  const CalibrationInput& input_;
  const std::string& file_;
  nlohmann::ordered_json& json_;
  Calibration out_;
  // Paths of figures that reached 1.
  std::set<std::string> limited_;
};

}  // namespace

Result<Calibration> Calibrate(const CalibrationInput& input, const std::string& file,
                              nlohmann::ordered_json& cluster) {
  return Calibrator(input, file, cluster).Run();
}

}  // namespace heddle::price
