#include "heddle/passes/parallel/presets.h"

#include <algorithm>
#include <set>

#include "heddle/base/text.h"

namespace heddle {
namespace {

// The dimension of a weight that tensor parallelism splits.
struct WeightRule {
  std::string_view pattern;
  size_t dim;
};
constexpr WeightRule kWeights[] = {
    // Vocabulary: rows of the table.
    {"tok_embeddings.weight", 0},
    {"output.weight", 0},
    // Columns of the transposed weight: heads and hidden units.
    {"**.attention.wq.weight", 0},
    {"**.attention.wk.weight", 0},
    {"**.attention.wv.weight", 0},
    {"**.attention.wq_b.weight", 0},
    {"**.attention.wkv_b.weight", 0},
    {"**.w1.weight", 0},
    {"**.w3.weight", 0},
    {"**.up.weight", 0},
    {"**.w1_EFD", 1},
    {"**.w3_EFD", 1},
    // Its rows.
    {"**.attention.wo.weight", 1},
    {"**.w2.weight", 1},
    {"**.down.weight", 1},
    {"**.w2_EDF", 2},
};

// What flows between modules.
enum class Flow : uint8_t { kNone, kResidual, kWhole, kLogits };
struct ModuleRule {
  std::string_view pattern;
  Flow in;
  Flow out;
};
constexpr ModuleRule kModules[] = {
    {"tok_embeddings", Flow::kNone, Flow::kResidual},
    {"layers.*.attention_norm", Flow::kResidual, Flow::kResidual},
    {"layers.*.attention", Flow::kWhole, Flow::kResidual},
    {"layers.*.ffn_norm", Flow::kResidual, Flow::kResidual},
    {"layers.*.feed_forward", Flow::kWhole, Flow::kResidual},
    {"layers.*.moe", Flow::kWhole, Flow::kResidual},
    {"layers.*.up", Flow::kWhole, Flow::kNone},
    {"layers.*.down", Flow::kNone, Flow::kResidual},
    {"norm", Flow::kResidual, Flow::kResidual},
    {"output", Flow::kWhole, Flow::kLogits},
    {"loss", Flow::kLogits, Flow::kNone},
};

class Preset {
 public:
  Preset(const Graph& graph, const Mesh& mesh, const PresetOptions& options)
      : graph_(graph), options_(options) {
    plan_.mesh = mesh;
  }

  Result<Plan> Run() {
    HEDDLE_TRY(Axes replicate, Axis(options_.replicate));
    HEDDLE_TRY(shard_, Axis(options_.shard));
    HEDDLE_TRY(tensor_, Axis(options_.tensor));
    data_ = replicate;
    for (AxisId axis : shard_) data_.Add(axis);
    std::set<std::string> names;
    for (const std::string* name : {&options_.replicate, &options_.shard, &options_.tensor}) {
      if (!name->empty() && !names.insert(*name).second)
        return Error(Diag::kAxisTwice, "axis `{}` is used for two kinds of parallelism", *name);
    }
    AddInputs();
    for (const Input& input : graph_.inputs()) {
      if (input.role == InputRole::kParam) AddParam(input);
    }
    AddModules();
    return std::move(plan_);
  }

 private:
  Result<Axes> Axis(const std::string& name) const {
    if (name.empty()) return Axes();
    std::optional<AxisId> axis = plan_.mesh.Find(name);
    if (!axis)
      return Error(Diag::kUnknownAxis, "`{}` is not an axis of the mesh [{}]", name,
                   Format(plan_.mesh));
    return Axes(*axis);
  }

  void AddInputs() {
    if (data_.empty()) return;
    bool batch = std::ranges::any_of(
        graph_.inputs(), [](const Input& input) { return input.role == InputRole::kBatch; });
    if (!batch) return;
    Placement placement;
    placement.splits = {data_};
    plan_.inputs.push_back({"*", placement, 1, 0});
  }

  void AddParam(const Input& input) {
    std::span<const Dim> dims = graph_.types().dims(graph_.type(input.value));
    PlanParam param{.pattern = input.label, .unit = input.unit};
    param.compute.splits.resize(dims.size());
    param.store_rank = param.compute_rank = dims.size();
    for (const WeightRule& rule : kWeights) {
      if (rule.dim < dims.size() && MatchesPattern(rule.pattern, input.label))
        param.compute.splits[rule.dim] = tensor_;
    }
    param.store = param.compute;
    if (!dims.empty()) {
      for (AxisId axis : shard_) param.store.splits[ShardDim(dims)].Add(axis);
    }
    param.store.Normalize();
    param.compute.Normalize();
    plan_.params.push_back(std::move(param));
  }

  // Stacks of experts are cut inside of each expert when there are more ranks than experts.
  size_t ShardDim(std::span<const Dim> dims) const {
    return dims.size() == 3 && plan_.mesh.Size(shard_) > dims[0] ? 1 : 0;
  }

  void AddModules() {
    for (const ModuleRule& rule : kModules) {
      if (!Occurs(rule.pattern)) continue;
      PlanModule module{.pattern = std::string(rule.pattern)};
      bool moe = rule.pattern.ends_with(".moe");
      // Without expert parallelism every rank routes its own tokens.
      if (moe) module.local = data_;
      if (!tensor_.empty()) {
        module.in = Boundary(rule.in);
        module.out = Boundary(rule.out);
        if (rule.pattern == "loss") {
          module.why = Why::kLoss;
          module.write_out = options_.split_loss;
        }
      }
      if (module.in || module.out || !module.local.empty())
        plan_.modules.push_back(std::move(module));
    }
  }

  std::optional<BoundaryPlacement> Boundary(Flow flow) const {
    if (flow == Flow::kNone) return std::nullopt;
    BoundaryPlacement out{{}, 3};
    out.placement.splits = {data_, {}, {}};
    if (flow == Flow::kResidual && options_.sequence_parallel) out.placement.splits[1] = tensor_;
    if (flow == Flow::kLogits && options_.split_loss) out.placement.splits[2] = tensor_;
    out.placement.Normalize();
    return out;
  }

  // Whether a module of the graph has this path.
  bool Occurs(std::string_view pattern) const {
    auto parts = static_cast<size_t>(std::ranges::count(pattern, '.'));
    for (uint32_t s = 0; s < graph_.scope_count(); ++s) {
      std::string_view scope = graph_.scope_name(ScopeId(s));
      size_t end = scope.size();
      size_t dots = 0;
      for (size_t i = 0; i < scope.size(); ++i) {
        if (scope[i] == '.' && dots++ == parts) {
          end = i;
          break;
        }
      }
      if (MatchesPattern(pattern, scope.substr(0, end))) return true;
    }
    return false;
  }

  const Graph& graph_;
  const PresetOptions& options_;
  Plan plan_;
  Axes data_;
  Axes shard_;
  Axes tensor_;
};

}  // namespace

Result<Plan> MakePlan(const Graph& graph, const Mesh& mesh, const PresetOptions& options) {
  return Preset(graph, mesh, options).Run();
}

}  // namespace heddle
