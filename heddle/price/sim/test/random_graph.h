// Random local graphs for tests: compute, views, collectives on several communicators, copies to
// host memory and back, and waits right after the start, later, or at the end.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <fmt/core.h>

namespace heddle::price {

// Nodes with two devices, on which transferring a byte takes about as long as an operation, and
// every kind of work takes some time.
inline constexpr std::string_view kSmallCluster = R"({
  "heddle": "cluster 1", "name": "small", "devices_per_node": 2,
  "device": {"memory_gib": 1, "memory_gb_per_s": 1, "memory_efficiency": 1, "cores": 1, "tflops": {}, "vector_tflops": 0.001,
    "launch_us": 0.02, "kernels": {"matmul": {"tiles": [[1, 1, 1]], "fill": 0, "wave_loss": 0, "splits": 1},
    "attention": {"efficiency": 1, "half": 0, "block": 1, "wave_loss": 0}}},
  "links": {"node": {"gb_per_s": 2}, "network": {"gb_per_s": 1, "ports": 2}, "host": {"gb_per_s": 1, "latency_us": 0.03}},
  "protocols": [{"name": "p", "base_us": 0.02, "node": {"step_us": 0.01, "efficiency": 1}, "network": {"step_us": 0.03, "efficiency": 1}}]
})";

// Graphs on a mesh [dp=2, tp=2]. Sizes differ, so that no two nodes end at the same time by chance.
inline std::string RandomGraphText(uint32_t seed, size_t nodes) {
  std::mt19937 random(seed);
  auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  struct Value {
    std::string name;
    size_t size;
  };
  std::vector<Value> values{{"x", 64}, {"y", 96}};
  std::vector<Value> on_host;
  struct Flying {
    Value value;
    bool host;
  };
  std::vector<Flying> flying;
  std::string body;
  for (size_t i = 0; i < nodes; ++i) {
    Value in = values[pick(values.size())];
    Value out{fmt::format("v{}", i), in.size};
    switch (pick(8)) {
      case 0:
        body += fmt::format("  %{} = aten.view(%{}, size=[{}])\n", out.name, in.name, in.size);
        break;
      case 1: body += fmt::format("  %{} = aten.exp(%{})\n", out.name, in.name); break;
      case 2:
        body += fmt::format("  %{0} = aten.cat([%{1}, %{1}])\n", out.name, in.name);
        out.size = std::min<size_t>(2 * in.size, 4096);
        if (out.size != 2 * in.size) {
          body.erase(body.rfind("  %"));
          continue;
        }
        break;
      case 3: {
        const char* axes[] = {"dp", "tp", "dp,tp"};
        size_t over = pick(3);
        size_t ranks = over == 2 ? 4 : 2;
        const char* kinds[] = {"all_reduce", "all_gather", "reduce_scatter"};
        size_t kind = in.size * ranks > 4096 || in.size % 4 != 0 ? 0 : pick(3);
        if (kind == 1) out.size *= ranks;
        if (kind == 2) out.size /= ranks;
        body +=
            fmt::format("  %{}! = comm.{}(%{}, over=[{}], why=grad) : async f32[{}] stream={}\n",
                        out.name, kinds[kind], in.name, axes[over], out.size, pick(2));
        flying.push_back({out, false});
        continue;
      }
      case 4: {
        if (!on_host.empty() && pick(2) == 0) {
          out.size = on_host.back().size;
          body += fmt::format("  %{}! = mem.reload(%{})\n", out.name, on_host.back().name);
          on_host.pop_back();
          flying.push_back({out, false});
        } else {
          body += fmt::format("  %{}! = mem.offload(%{})\n", out.name, in.name);
          flying.push_back({out, true});
        }
        continue;
      }
      default: {
        if (flying.empty()) continue;
        size_t at = pick(flying.size());
        Flying landed = flying[at];
        flying.erase(flying.begin() + static_cast<ptrdiff_t>(at));
        body += fmt::format("  %{0} = comm.wait(%{0}!)\n", landed.value.name);
        (landed.host ? on_host : values).push_back(landed.value);
        continue;
      }
    }
    values.push_back(out);
  }
  for (const Flying& one : flying)
    body += fmt::format("  %{0} = comm.wait(%{0}!)\n", one.value.name);
  return fmt::format(
      "heddle 1 local\nmesh [dp=2, tp=2]\ngraph @g(%x: f32[64] batch, %y: f32[96] param 0) -> "
      "(metric %{}) {{\n{}}}\n",
      values[pick(values.size())].name, body);
}

}  // namespace heddle::price
