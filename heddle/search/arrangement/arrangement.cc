#include "heddle/search/arrangement/arrangement.h"

#include <algorithm>
#include <span>

#include "heddle/core/base/text.h"

namespace heddle::search {
namespace {

// Maximum number of micro-batch counts per mesh. Keeps those with the fewest sequences per
// micro-batch.
constexpr size_t kMostMicroBatches = 16;

std::vector<int64_t> Divisors(int64_t n) {
  std::vector<int64_t> small;
  std::vector<int64_t> large;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    small.push_back(d);
    if (d != n / d) large.push_back(n / d);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

// Returns the possible expert degrees: each divides the experts, and the tokens of tensor-parallel
// ranks.
std::vector<int64_t> ExpertDegrees(int64_t experts, const Arrangement& arrangement,
                                   int64_t sequences) {
  std::vector<int64_t> out{1};
  if (experts == 0 || (sequences > 1 && sequences % arrangement.tensor != 0)) return out;
  for (int64_t degree : Divisors(arrangement.shard * arrangement.tensor)) {
    if (degree > 1 && experts % degree == 0 && degree % arrangement.tensor == 0)
      out.push_back(degree);
  }
  return out;
}

// A degree of a preset, in the presets' order.
struct Degree {
  std::string_view preset;
  std::string_view axis;
  int64_t ranks;
};
std::vector<Degree> Degrees(const Arrangement& arrangement) {
  std::vector<Degree> out;
  for (const compile::Preset* preset : compile::Presets()) {
    int64_t ranks = preset->role == AxisRole::kReplicate ? arrangement.replicate
                    : preset->role == AxisRole::kShard   ? arrangement.shard
                    : preset->role == AxisRole::kTensor  ? arrangement.tensor
                                                         : 1;
    if (ranks > 1) out.push_back({preset->name, preset->axis(), ranks});
  }
  // A mesh must have at least one axis, also on one rank.
  if (out.empty()) out.push_back({"shard", "dp", 1});
  return out;
}

struct Layout {
  Mesh mesh;
  compile::PresetOptions preset;
};
Layout LayoutOf(const Arrangement& arrangement) {
  std::vector<MeshAxis> axes;
  compile::PresetOptions preset;
  for (const Degree& degree : Degrees(arrangement)) {
    axes.push_back({std::string(degree.axis), degree.ranks});
    preset.axes.emplace(degree.preset, degree.axis);
  }
  if (arrangement.experts > 1)
    compile::ChooseExpertAxes(arrangement.experts, /*with_tensor=*/true, axes, preset);
  return {Mesh(std::move(axes)), std::move(preset)};
}

}  // namespace

Mesh MeshOf(const Arrangement& arrangement) { return LayoutOf(arrangement).mesh; }

compile::PresetOptions PresetOf(const Arrangement& arrangement) {
  return LayoutOf(arrangement).preset;
}

std::string Format(const Arrangement& arrangement) {
  std::string out;
  for (const Degree& degree : Degrees(arrangement))
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", degree.axis, degree.ranks);
  if (arrangement.experts > 1) out += fmt::format(", ep {}", arrangement.experts);
  if (arrangement.micro_batches > 1)
    out += fmt::format(", {} micro-batches", arrangement.micro_batches);
  return out;
}

std::vector<Arrangement> Arrangements(const ArrangementSpace& space) {
  std::vector<Arrangement> out;
  for (int64_t tensor : Divisors(space.devices)) {
    if (tensor > space.node_devices || (tensor > 1 && !space.may_split(tensor))) continue;
    int64_t data = space.devices / tensor;
    if (space.global_batch % data != 0) continue;
    for (int64_t replicate : Divisors(data)) {
      int64_t copy = space.devices / replicate;
      bool fills_nodes = copy % space.node_devices == 0 || space.node_devices % copy == 0;
      if (replicate > 1 && !fills_nodes) continue;
      std::vector<int64_t> counts = Divisors(space.global_batch / data);
      if (space.one_pass) counts = {1};
      size_t first = counts.size() - std::min(counts.size(), kMostMicroBatches);
      for (int64_t micro : std::span(counts).subspan(first)) {
        Arrangement one{.replicate = replicate,
                        .shard = data / replicate,
                        .tensor = tensor,
                        .micro_batches = micro};
        int64_t sequences = space.global_batch / data / micro;
        for (int64_t degree : ExpertDegrees(space.experts, one, sequences)) {
          one.experts = degree;
          out.push_back(one);
        }
      }
    }
  }
  return out;
}

}  // namespace heddle::search
