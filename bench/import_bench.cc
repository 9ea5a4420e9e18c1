// Measures imports: a graph with many statements, layer after layer, in each kind of file, and the
// same graph in Heddle's own text. The goal is 50 MB/s: files have 1 to 10 MB.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include "bench/consume.h"
#include "heddle/core/base/check.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "heddle/import/import.h"

namespace heddle {
namespace {

// Returns a repro with the usual mixture of gathers, products, norms and items: seven statements
// per layer.
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

// The same without gathers, which torch.export lacks. `metadata` adds the metadata that
// torch.export writes for every node.
std::string MakeExported(int64_t layers, bool metadata) {
  std::string inputs = R"({"as_tensor": {"name": "x"}})";
  std::string tensors = R"("x": {"dtype": 7, "sizes": [{"as_int": 64}, {"as_int": 512}]})";
  std::string nodes;
  auto add = [&](const std::string& name, std::string_view target, const std::string& args,
                 int64_t rows, int64_t columns) {
    std::string stack = fmt::format(
        R"(, "metadata": {{"stack_trace": "  File \"model.py\", line 7, in forward\n    return self.layer(x)\n",)"
        R"( "nn_module_stack": "L__self__,,Model;L__self___{0},layers.{0},torch.nn.modules.linear.Linear",)"
        R"( "source_fn_stack": "{0},torch.nn.functional.linear"}})",
        name);
    nodes += fmt::format(
        R"({}{{"target": "torch.ops.aten.{}", "inputs": [{}], "outputs": [{{"as_tensor": {{"name": "{}"}}}}]{}}})",
        nodes.empty() ? "" : ", ", target, args, name, metadata ? stack : "");
    tensors +=
        fmt::format(R"(, "{}": {{"dtype": 7, "sizes": [{{"as_int": {}}}, {{"as_int": {}}}]}})",
                    name, rows, columns);
  };
  auto tensor = [](std::string_view arg, const std::string& name) {
    return fmt::format(R"({{"name": "{}", "arg": {{"as_tensor": {{"name": "{}"}}}}, "kind": 1}})",
                       arg, name);
  };
  std::string last = "x";
  for (int64_t i = 0; i < layers; ++i) {
    std::string weight = fmt::format("p_{}", i);
    inputs += fmt::format(R"(, {{"as_tensor": {{"name": "{}"}}}})", weight);
    tensors += fmt::format(
        R"(, "{}": {{"dtype": 7, "sizes": [{{"as_int": 512}}, {{"as_int": 512}}]}})", weight);
    std::string dims = R"(, {"name": "dims", "arg": {"as_ints": [1, 0]}, "kind": 1})";
    std::string permute = fmt::format("permute_{}", i);
    std::string mm = fmt::format("mm_{}", i);
    add(permute, "permute.default", tensor("self", weight) + dims, 512, 512);
    add(mm, "mm.default", tensor("self", last) + ", " + tensor("mat2", permute), 64, 512);
    last = fmt::format("relu_{}", i);
    add(last, "relu.default", tensor("self", mm), 64, 512);
  }
  return fmt::format(
      R"({{"graph_module": {{"graph": {{"inputs": [{}], "outputs": [{{"as_tensor": {{"name": "{}"}}}}], "nodes": [{}], )"
      R"("tensor_values": {{{}}}}}}}}})",
      inputs, last, nodes, tensors);
}

void ImportText(benchmark::State& state, std::string text) {
  // ReadFile reserves this capacity, too.
  text.reserve(text.size() + 64);
  for (auto _ : state) {
    Result<Imported> imported = Import(text, "bench", {});
    HEDDLE_CHECK(imported.ok(), Format(imported.diagnostics()));
    Consume(imported);
  }
  state.SetBytesProcessed(static_cast<int64_t>(text.size()) * state.iterations());
  state.SetItemsProcessed(state.range(0) * state.iterations());
}

void ImportRepro(benchmark::State& state) { ImportText(state, MakeRepro(state.range(0) / 7)); }
void ImportExported(benchmark::State& state) {
  ImportText(state, MakeExported(state.range(0) / 3, true));
}
void ImportOwnJson(benchmark::State& state) {
  ImportText(state, MakeExported(state.range(0) / 3, false));
}

// Reads the graph of the repro as `heddle import` writes it.
void ReadOwnText(benchmark::State& state) {
  Result<Imported> imported = Import(MakeRepro(state.range(0) / 7), "bench", {});
  std::string text = Print(imported->module);
  for (auto _ : state) Consume(ParseModule(text, "bench", Ops()));
  state.SetBytesProcessed(static_cast<int64_t>(text.size()) * state.iterations());
  state.SetItemsProcessed(state.range(0) * state.iterations());
}

#define HEDDLE_BENCH(function, name) \
  BENCHMARK(function)->Name(name)->Arg(10'000)->Arg(100'000)->Unit(benchmark::kMillisecond)
HEDDLE_BENCH(ImportRepro, "import_repro");
HEDDLE_BENCH(ImportExported, "import_exported");
HEDDLE_BENCH(ImportOwnJson, "import_own_json");
HEDDLE_BENCH(ReadOwnText, "read_own_text");
#undef HEDDLE_BENCH

}  // namespace
}  // namespace heddle
