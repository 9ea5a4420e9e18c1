#include <cstdio>

#include "heddle/ir/text/print.h"
#include "heddle/ir/verify/parse_module.h"
#include "heddle/ops/ops.h"
#include "heddle/pass/manager.h"
#include "heddle/passes/passes.h"

int main() {
  auto module = heddle::ParseModule(
      "heddle 1 local\ngraph @g(%x: f32[4]) -> (%b) { %a = aten.alias(%x) %b = aten.exp(%a) }",
      "text", heddle::Ops());
  auto pipeline = heddle::ParsePipeline("clean", heddle::Passes());
  if (!module.ok() || !pipeline.ok() || !heddle::RunPipeline(*module, *pipeline).ok()) return 1;
  std::fputs(heddle::Print(*module).c_str(), stdout);
  return module->graphs[0].node_count() == 1 ? 0 : 1;
}
