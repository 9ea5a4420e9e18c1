#include "heddle/search/arrangement.h"

#include <algorithm>

#include "heddle/base/text.h"

namespace heddle {
namespace {

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

// By preset, in their order.
struct Degree {
  std::string_view preset;
  std::string_view axis;
  std::string_view flag;
  int64_t ranks;
};
std::vector<Degree> Degrees(const Arrangement& arrangement) {
  std::vector<Degree> out;
  for (const Preset* preset : Presets()) {
    int64_t ranks = preset->name == "replicate" ? arrangement.replicate
                    : preset->name == "shard"   ? arrangement.shard
                    : preset->name == "tensor"  ? arrangement.tensor
                                                : 1;
    if (ranks > 1) out.push_back({preset->name, preset->axis, preset->degree_flag, ranks});
  }
  // One rank is a mesh, too.
  if (out.empty()) out.push_back({"shard", "dp", "data_parallel_shard_degree", 1});
  return out;
}

}  // namespace

Mesh MeshOf(const Arrangement& arrangement) {
  std::vector<MeshAxis> axes;
  for (const Degree& degree : Degrees(arrangement))
    axes.push_back({std::string(degree.axis), degree.ranks});
  return Mesh(std::move(axes));
}

PresetOptions PresetOf(const Arrangement& arrangement) {
  PresetOptions options;
  for (const Degree& degree : Degrees(arrangement))
    options.axes.emplace(degree.preset, degree.axis);
  return options;
}

std::string Format(const Arrangement& arrangement) {
  std::string out;
  for (const Degree& degree : Degrees(arrangement))
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", degree.axis, degree.ranks);
  if (arrangement.micro_batches > 1)
    out += fmt::format(", {} micro-batches", arrangement.micro_batches);
  return out;
}

std::string FlagsOf(const Arrangement& arrangement, int64_t global_batch) {
  std::string out;
  for (const Degree& degree : Degrees(arrangement))
    out += fmt::format("--parallelism.{}={} ", degree.flag, degree.ranks);
  int64_t local = global_batch / arrangement.batch_ranks() / arrangement.micro_batches;
  out += fmt::format("--training.local_batch_size={}", local);
  if (arrangement.micro_batches > 1)
    out += fmt::format(" --training.global_batch_size={}", global_batch);
  return out;
}

std::vector<Arrangement> Arrangements(int64_t devices, int64_t global_batch, int64_t node_devices,
                                      const std::function<bool(int64_t)>& may_split) {
  std::vector<Arrangement> out;
  for (int64_t tensor : Divisors(devices)) {
    if (tensor > node_devices || (tensor > 1 && !may_split(tensor))) continue;
    int64_t data = devices / tensor;
    if (global_batch % data != 0) continue;
    for (int64_t replicate : Divisors(data)) {
      for (int64_t micro : Divisors(global_batch / data))
        out.push_back({replicate, data / replicate, tensor, micro});
    }
  }
  return out;
}

}  // namespace heddle
