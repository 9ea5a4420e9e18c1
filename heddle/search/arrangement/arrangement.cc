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
  const int64_t tensor = arrangement.tensor;
  for (int64_t degree : Divisors(arrangement.shard * arrangement.context * tensor)) {
    if (degree == 1 || experts % degree != 0 || degree % tensor != 0) continue;
    // All context-parallel ranks share experts, or none.
    if (degree == tensor || degree / tensor % arrangement.context == 0) out.push_back(degree);
  }
  return out;
}

// Returns the possible numbers of micro-batches, ascending, if each batch rank has this number of
// sequences.
std::vector<int64_t> MicroBatches(int64_t sequences, const Arrangement& arrangement,
                                  bool one_pass) {
  std::vector<int64_t> counts = Divisors(sequences);
  if (arrangement.context > 1) counts = {sequences};
  if (one_pass) std::erase_if(counts, [](int64_t count) { return count > 1; });
  size_t first = counts.size() - std::min(counts.size(), kMostMicroBatches);
  return {counts.begin() + static_cast<ptrdiff_t>(first), counts.end()};
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
                    : preset->role == AxisRole::kContext ? arrangement.context
                    : preset->role == AxisRole::kTensor  ? arrangement.tensor
                                                         : 1;
    if (ranks > 1) out.push_back({preset->name, preset->axis(), ranks});
  }
  // A mesh must have at least one axis, also on one rank.
  if (out.empty() && arrangement.pipeline == 1) out.push_back({"shard", "dp", 1});
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
    if (axes.back().role == AxisRole::kContext && !arrangement.context_heads)
      axes.back().role = AxisRole::kHeadTail;
  }
  preset.context_heads = arrangement.context_heads;
  if (arrangement.experts > 1)
    compile::ChooseExpertAxes(arrangement.experts, /*with_tensor=*/true, axes, preset);
  if (arrangement.pipeline > 1)
    axes.emplace(axes.begin(), "pp", arrangement.pipeline, AxisRole::kPipeline);
  return {Mesh(std::move(axes)), std::move(preset)};
}

}  // namespace

Mesh MeshOf(const Arrangement& arrangement) { return LayoutOf(arrangement).mesh; }

compile::PresetOptions PresetOf(const Arrangement& arrangement) {
  return LayoutOf(arrangement).preset;
}

std::string_view MethodOf(const Arrangement& arrangement) {
  return arrangement.context_heads ? "ulysses" : "allgather";
}

std::string Format(const Arrangement& arrangement, bool with_method) {
  std::string out = arrangement.pipeline > 1 ? fmt::format("pp {}", arrangement.pipeline) : "";
  for (const Degree& degree : Degrees(arrangement)) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", degree.axis, degree.ranks);
    if (with_method && degree.preset == "context") out += fmt::format(" {}", MethodOf(arrangement));
  }
  if (arrangement.experts > 1) out += fmt::format(", ep {}", arrangement.experts);
  if (arrangement.micro_batches > 1)
    out += fmt::format(", {} micro-batches", arrangement.micro_batches);
  return out;
}

namespace {

// Whether groups of this many ranks fill whole nodes, or share nodes evenly.
bool FillsNodes(int64_t ranks, int64_t node_devices) {
  return ranks % node_devices == 0 || node_devices % ranks == 0;
}

// Adds every arrangement with these degrees of tensor and context parallelism.
void AddArrangements(const ArrangementSpace& space, Arrangement one,
                     std::vector<Arrangement>& out) {
  const int64_t data = space.devices / one.tensor / one.context;
  if (space.global_batch % data != 0) return;
  const int64_t rank_sequences = space.global_batch / data;
  for (int64_t replicate : Divisors(data)) {
    if (replicate > 1 && !FillsNodes(space.devices / replicate, space.node_devices)) continue;
    one.replicate = replicate;
    one.shard = data / replicate;
    for (int64_t micro : MicroBatches(rank_sequences, one, space.one_pass)) {
      one.micro_batches = micro;
      for (int64_t degree : ExpertDegrees(space.experts, one, rank_sequences / micro)) {
        one.experts = degree;
        out.push_back(one);
      }
    }
  }
}

}  // namespace

std::vector<Arrangement> Arrangements(const ArrangementSpace& space) {
  std::vector<Arrangement> out;
  for (int64_t tensor : Divisors(space.devices)) {
    if (tensor > space.node_devices) continue;
    for (int64_t context : Divisors(space.devices / tensor)) {
      if (context > 1 && !FillsNodes(tensor * context, space.node_devices)) continue;
      for (bool heads : {false, true}) {
        if (context == 1 && heads) continue;
        Arrangement one{.tensor = tensor, .context = context, .context_heads = heads};
        bool splits = tensor > 1 || context > 1;
        if (!splits || space.supports(one)) AddArrangements(space, one, out);
      }
    }
  }
  return out;
}

std::vector<Arrangement> PipelineArrangements(const ArrangementSpace& space, int64_t most_ranks) {
  std::vector<Arrangement> out;
  for (int64_t ranks : Divisors(space.devices)) {
    const int64_t inner = space.devices / ranks;
    if (ranks == 1 || ranks > most_ranks || !FillsNodes(inner, space.node_devices)) continue;
    ArrangementSpace of_coordinate = space;
    of_coordinate.devices = inner;
    for (Arrangement one : Arrangements(of_coordinate)) {
      if (one.context > 1 || one.replicate > 1 || one.micro_batches == 1) continue;
      one.pipeline = ranks;
      out.push_back(one);
    }
  }
  return out;
}

}  // namespace heddle::search
