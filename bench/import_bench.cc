// What an import costs: a printed graph of many statements, as one layer after the other.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include "heddle/base/check.h"
#include "heddle/import/import.h"

namespace heddle {
namespace {

// Gathers, products, norms and items in about the mixture that repros have; seven statements for each of `layers`.
std::string MakeRepro(int64_t layers) {
  std::string body;
  std::string args = "self, primals_1";
  std::string load = "    reader.tensor(buf0, (64, 512), dtype=torch.bfloat16)  # primals_1\n";
  std::string last = "primals_1";
  for (int64_t i = 0; i < layers; ++i) {
    args += fmt::format(", primals_{}", i + 2);
    load +=
        fmt::format("    reader.tensor(buf{}, (64, 512), is_leaf=True)  # primals_{}\n", i, i + 2);
    body += fmt::format(
        "        cast_{0} = torch.ops.prims.convert_element_type.default(primals_{1}, "
        "torch.bfloat16)\n"
        "        all_gather_{0} = "
        "torch.ops._c10d_functional.all_gather_into_tensor.default(cast_{0}, 8, '0');  cast_{0} = "
        "None\n"
        "        wait_tensor_{0} = torch.ops._c10d_functional.wait_tensor.default(all_gather_{0}); "
        " all_gather_{0} = None\n"
        "        permute_{0} = torch.ops.aten.permute.default(wait_tensor_{0}, [1, 0]);  "
        "wait_tensor_{0} = None\n"
        "        mm_{0} = torch.ops.aten.mm.default({2}, permute_{0});  permute_{0} = None\n"
        "        split_{0} = torch.ops.aten.split.Tensor(mm_{0}, 256, 1)\n"
        "        getitem_{0} = split_{0}[0];  split_{0} = None\n",
        i, i + 2, last);
    last = fmt::format("mm_{}", i);
  }
  return fmt::format(
      "class Repro(torch.nn.Module):\n    def forward({}):\n{}        return ({},)\n\ndef "
      "load_args(reader):\n{}load_args._version = 0\n\ndef get_pg_config():\n    return {{'0': "
      "{{'size': 8, 'rank': 0}}}}\n",
      args, body, last, load);
}

void ImportRepro(benchmark::State& state) {
  std::string text = MakeRepro(state.range(0) / 7);
  for (auto _ : state) {
    Result<Imported> imported = Import(text, "repro.py", {});
    HEDDLE_CHECK(imported.ok(), Format(imported.diagnostics()));
    benchmark::DoNotOptimize(imported);
  }
  state.SetBytesProcessed(static_cast<int64_t>(text.size()) * state.iterations());
  state.SetItemsProcessed(state.range(0) * state.iterations());
}

BENCHMARK(ImportRepro)->Arg(10'000)->Arg(100'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace heddle
