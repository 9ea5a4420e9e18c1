#include "test/golden/equal.h"

#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/runtime/shards.h"
#include "heddle/run/runtime/test/run_on_whole.h"
#include "heddle/run/train/exact.h"
#include "test/golden/small_inputs.h"
#include "test/golden/unplaced.h"

namespace heddle {
namespace {

// Runs a local graph on its ranks, and a global one on a single device.
Result<std::vector<at::Tensor>> RunEither(const Module& module,
                                          const std::vector<at::Tensor>& inputs) {
  return run::RunOnWhole(module.view == View::kGlobal ? Unplaced(module) : module, inputs);
}

Status CheckEqual(const std::string& before_text, const std::string& after_text, int64_t ranks) {
  HEDDLE_TRY(Module before, ParseModule(before_text, "input", Ops()));
  HEDDLE_TRY(Module after, ParseModule(after_text, "output", Ops()));
  if (after.mesh.ranks() != ranks)
    return Error(Diag::kRunFault, "the output is a graph for {} ranks", after.mesh.ranks());
  if (before.graphs[0].inputs().size() != after.graphs[0].inputs().size() ||
      before.graphs[0].outputs().size() != after.graphs[0].outputs().size())
    return Error(Diag::kRunFault, "input and output have graphs of different inputs or outputs");
  // With several threads, MKL may round `aten.exp` of a shard other than that of the whole tensor.
  run::MakeExact();
  HEDDLE_TRY(std::vector<at::Tensor> inputs, SmallInputs(before));
  HEDDLE_TRY(std::vector<at::Tensor> expected, RunEither(before, inputs));
  HEDDLE_TRY(std::vector<at::Tensor> got, RunEither(after, inputs));
  for (size_t o = 0; o < expected.size(); ++o) {
    if (run::SameBits(got[o], expected[o])) continue;
    return Error(Diag::kRunFault, "{} has other bits than {} of the input",
                 PrintOutput(after, after.graphs[0], after.graphs[0].outputs()[o]),
                 PrintOutput(before, before.graphs[0], before.graphs[0].outputs()[o]));
  }
  return Done{};
}

}  // namespace

std::string WhyNotEqual(const std::string& before, const std::string& after, int64_t ranks) {
  Status status = CheckEqual(before, after, ranks);
  return status.ok() ? "" : Format(status.diagnostics());
}

}  // namespace heddle
