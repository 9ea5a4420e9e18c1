#include <cstdio>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"

int main() {
  auto module = heddle::ParseModule(
      "heddle 1 local\ngraph @g(%x: f32[4]) -> (%b) { %a = aten.alias(%x) %b = aten.exp(%a) }",
      "text", heddle::Ops());
  auto pipeline = heddle::compile::ParsePipeline("clean", heddle::compile::Passes());
  if (!module.ok() || !pipeline.ok() || !heddle::compile::RunPipeline(*module, *pipeline).ok())
    return 1;
  std::fputs(heddle::Print(*module).c_str(), stdout);
  return module->graphs[0].node_count() == 1 ? 0 : 1;
}
