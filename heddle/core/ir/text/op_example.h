// The example call of an op, as a graph of one node. Documentation and conformance tests are made from it.
#pragma once

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

// What the numbers of an input should be when the example runs.
struct ExampleInput {
  enum class Data : uint8_t { kAny, kBelow, kRising, kProbability } data = Data::kAny;
  // kBelow: whole numbers from 0 up to, not including, `limit`. kRising: evenly rising whole numbers that end in it.
  int64_t limit = 0;
};

struct Example {
  // On a mesh [dp=4, tp=2]. All results are outputs.
  Module module;
  // By input of the graph.
  std::vector<ExampleInput> inputs;
};

// In an example, types stand where a call has values: `(f32[10,6], i64[2,3] below 10, dim=1)`.
Result<Example> MakeExample(const OpTable& ops, OpId op);
// The same of another call, for tests: the op's own example shows one way of many.
Result<Example> MakeExample(const OpTable& ops, OpId op, std::string_view call);

}  // namespace heddle
