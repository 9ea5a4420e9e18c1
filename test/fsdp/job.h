// A small job, compiled with any pipeline, and trained against eager or against another graph of
// it.
#pragma once

#include <string>

#include "heddle/run/models/model.h"
#include "heddle/run/runtime/reducer.h"
#include "heddle/run/verify/verify.h"

namespace heddle {

struct JobOptions {
  const char* family = "llama3";
  const char* flavor = "debugmodel";
  DType compute = DType::kF32;
  int64_t replicate = 1;
  int64_t shard = 1;
  int64_t tensor = 1;
  // Uses sizes that no number of ranks divides, so that payloads are padded and reducers' chunks
  // cut tensors at arbitrary positions.
  bool odd = false;
};

class FsdpJob {
 public:
  explicit FsdpJob(const JobOptions& options);

  const run::Model& model() const { return model_; }
  const Module& whole() const { return whole_; }
  // Returns the graph of one rank after this pipeline. Fails the test on errors.
  Module Compiled(const std::string& pipeline) const;

  // Trains the graph and compares it with eager, or with another graph.
  Result<run::VerifyReport> AgainstEager(const Module& graph, const run::Reducer& reducer,
                                         int64_t steps) const;
  Result<run::VerifyReport> Against(const Module& graph, const Module& other,
                                    const run::Reducer& reducer, int64_t steps) const;

 private:
  Result<run::VerifyReport> Train(const Module& graph, const run::Reducer& reducer,
                                  run::VerifyOptions options) const;
  run::GraphRunMaker Runs(const Module& graph, const run::Reducer& reducer) const;

  JobOptions options_;
  run::Model model_;
  Module whole_;
};

// Summarizes a report for messages; `equal` if nothing differs.
std::string Describe(const Result<run::VerifyReport>& report);

}  // namespace heddle
