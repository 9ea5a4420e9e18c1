// Expert parallelism: ranks share the experts of a mixture. They are data-parallel and
// context-parallel ranks, and optionally also tensor-parallel ones.
#include <algorithm>

#include "heddle/compile/plan/patterns.h"
#include "heddle/compile/plan/presets/presets.h"
#include "heddle/core/base/text.h"

namespace heddle::compile {
namespace {

// Sequences of the batch on each data-parallel rank.
int64_t Sequences(const PlanDraft& draft) {
  for (const Input& input : draft.graph.inputs()) {
    if (input.role != InputRole::kBatch) continue;
    std::span<const Dim> dims = draft.graph.types().dims(draft.graph.type(input.value));
    if (!dims.empty() && !IsSymbol(dims[0])) return dims[0] / draft.plan.mesh.Size(draft.data);
  }
  return 1;
}

// Valid degrees for messages: multiples of `step` that divide the experts and the ranks.
std::string Divisors(int64_t experts, int64_t ranks, int64_t step) {
  std::string out;
  for (int64_t d = step; d <= std::min(experts, ranks); d += step) {
    if (d > 1 && experts % d == 0 && ranks % d == 0)
      out += fmt::format("{}{}", out.empty() ? "" : ", ", d);
  }
  return out.empty() ? "none" : out;
}

}  // namespace

void ChooseExpertAxes(int64_t degree, bool with_tensor, std::vector<MeshAxis>& axes,
                      PresetOptions& options) {
  auto size_of = [&](std::string_view preset) {
    auto name = options.axes.find(preset);
    if (name == options.axes.end()) return int64_t{1};
    return std::ranges::find(axes, name->second, &MeshAxis::name)->size;
  };
  int64_t tensor = with_tensor ? size_of("tensor") : 1;
  int64_t inside = degree / tensor;
  int64_t context = inside > 1 ? size_of("context") : 1;
  inside /= context;
  int64_t outside = size_of("shard") / inside;
  if (inside > 1) options.experts.push_back(options.axes.at("shard"));
  if (context > 1) options.experts.push_back(options.axes.at("context"));
  if (tensor > 1) options.experts.push_back(options.axes.at("tensor"));
  if (inside == 1 || outside == 1) return;
  std::string& shard = options.axes.at("shard");
  options.inner_shard = options.experts[0] = shard + std::string(kInnerExpertSuffix);
  auto at = std::ranges::find(axes, shard, &MeshAxis::name);
  shard += kOuterExpertSuffix;
  *at = {shard, outside, AxisRole::kShard};
  axes.insert(at + 1, {options.inner_shard, inside, AxisRole::kExpert});
}

bool IsShared(const PlanDraft& draft, const PlanParam& param) {
  return !draft.experts.empty() &&
         std::ranges::any_of(draft.rules.experts, [&](const std::string& pattern) {
           return MatchesPattern(pattern, param.pattern);
         });
}

BoundaryPlacement OwnTokens(const PlanDraft& draft, AxisId tensor) {
  BoundaryPlacement out{{}, 3};
  out.placement.splits = {draft.data, draft.context, {}};
  // Of a single sequence, each rank has a part. Of several, it has whole sequences, because parts
  // of several would not be contiguous.
  out.placement.splits[Sequences(draft) == 1 ? 1 : 0].Add(tensor);
  out.placement.Normalize();
  return out;
}

Status ShareExperts(PlanDraft& draft) {
  const Mesh& mesh = draft.plan.mesh;
  int64_t ranks = mesh.Size(draft.experts);
  if (draft.experts.empty()) return Done{};
  // Axes that share experts and do not split the batch.
  Axes own;
  for (AxisId axis : draft.experts) {
    if (!draft.data.contains(axis)) own.Add(axis);
  }
  size_t next = 0;
  for (const Input& input : draft.graph.inputs()) {
    if (input.role != InputRole::kParam) continue;
    PlanParam& param = draft.plan.params[next++];
    if (!IsShared(draft, param)) continue;
    Dim experts = draft.graph.types().dims(draft.graph.type(input.value))[0];
    if (experts % ranks != 0)
      return Error(Diag::kMeshSize,
                   "`{}` has {} experts, which cannot be divided evenly among {} ranks; use {}",
                   param.pattern, experts, ranks,
                   Divisors(experts, mesh.Size(draft.sharding) * mesh.Size(own), mesh.Size(own)));
    for (AxisId axis : draft.experts) {
      param.compute.splits[0].Add(axis);
      param.store.splits[0].Add(axis);
    }
  }
  int64_t sequences = Sequences(draft);
  if (own.empty() || sequences == 1 || sequences % mesh.Size(own) == 0) return Done{};
  return Error(Diag::kMeshSize,
               "each data-parallel rank has {} sequences, which cannot be divided among the {} "
               "ranks of [{}] that share experts; use 1, or a multiple of {}",
               sequences, mesh.Size(own), Format(mesh, own), mesh.Size(own));
}

}  // namespace heddle::compile
