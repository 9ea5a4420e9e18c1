// Trials: applies memory decisions, runs the rest of the pipeline, and evaluates the result
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
  // `clean` has run on `module`, which has one local graph; `after` runs after the decisions. All
  // arguments must outlive this object.
  Trials(const Module& module, const compile::Pipeline& after, const price::CostModel& model);

  const Module& module() const { return module_; }
  const Graph& graph() const { return module_.graphs[0]; }
  const price::CostModel& model() const { return evaluator_.costs(); }

  // Returns the marks of a policy of `checkpoint`.
  Result<Marks> MarksOf(std::string_view policy) const;
  // Returns the module with marks on all values that have none.
  Module Marked(const Marks& marks) const;
  // Evaluates marks; cached. The pointer stays valid.
  Result<const MemoryChoice*> Try(std::string policy, const Marks& marks);
  // The tried choice with the smallest peak.
  const MemoryChoice& Smallest() const;
  // Lists the values alive at the peak of a choice, the largest first: `params and other inputs
  // 1.20 GiB, %mm_7 501.00 MiB, ...`.
  Result<std::string> HoldsPeak(const MemoryChoice& choice) const;
  // Applies marks. Returns the module before the rest of the pipeline.
  Result<Module> CarriedOut(const Marks& marks) const;
  size_t count() const { return tried_.size(); }
  // After the first trial, without decisions: the time of its compute stream, and the bytes of
  // inputs.
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
