// Trials: decisions about memory, carried out, with the rest of the pipeline after them, and evaluated
// (evaluate/evaluate.h).
#pragma once

#include <map>
#include <string>

#include "heddle/compile/passes/memory/memory_passes.h"
#include "heddle/core/base/result.h"
#include "heddle/search/evaluate/evaluate.h"
#include "heddle/search/memory/choice.h"

namespace heddle::search {

class Trials {
 public:
  // `clean` has run on `module`, which has one local graph; `after` is what runs behind the decisions. All outlive this.
  Trials(const Module& module, const compile::Pipeline& after, const price::CostModel& model);

  const Module& module() const { return module_; }
  const Graph& graph() const { return module_.graphs[0]; }
  const price::CostModel& model() const { return evaluator_.costs(); }

  // What is decided by a policy of `checkpoint`.
  Result<Marks> MarksOf(std::string_view policy) const;
  // The module with marks on all values that have none.
  Module Marked(const Marks& marks) const;
  // Remembers what was tried. The answer stays good.
  Result<const MemoryChoice*> Try(std::string policy, const Marks& marks);
  // Of all that was tried, the one that needs least.
  const MemoryChoice& Smallest() const;
  // What is there at the peak of a choice: `params and other inputs 1.20 GiB, %mm_7 501.00 MiB, ...`, the largest first.
  Result<std::string> HoldsPeak(const MemoryChoice& choice) const;
  // The module that marks make, in front of the rest of the pipeline.
  Result<Module> CarriedOut(const Marks& marks) const;
  size_t count() const { return tried_.size(); }
  // After the first trial, where nothing is decided: the time of its compute stream, and the bytes
  // of the step's inputs.
  Nanos compute() const { return compute_; }
  Bytes inputs() const { return inputs_; }

 private:
  Result<MemoryChoice> Run(std::string policy, const Marks& marks);

  const Module& module_;
  compile::Pipeline pipeline_;
  Evaluator evaluator_;
  std::map<Marks, MemoryChoice> tried_;
  Nanos compute_;
  Bytes inputs_;
};

}  // namespace heddle::search
