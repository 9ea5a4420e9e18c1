// The example call of an op, as a graph of one node. Documentation and conformance tests use it.
#pragma once

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

// The values of an input when the example runs.
struct ExampleInput {
  enum class Data : uint8_t { kAny, kBelow, kRising, kProbability } data = Data::kAny;
  // kBelow: whole numbers from 0 up to, but not including, `limit`. kRising: evenly increasing
  // whole numbers that end with `limit`.
  int64_t limit = 0;
};

struct Example {
  // A graph on a mesh [dp=4, tp=2]. All results are outputs.
  Module module;
  // Indexed by input of the graph.
  std::vector<ExampleInput> inputs;
};

// The text has types in place of values: `(f32[10,6], i64[2,3] below 10, dim=1)`.
Result<Example> MakeExample(const OpTable& ops, OpId op);
// The same for another call. Tests use it, because the op's own example shows only one form.
Result<Example> MakeExample(const OpTable& ops, OpId op, std::string_view call);

}  // namespace heddle
