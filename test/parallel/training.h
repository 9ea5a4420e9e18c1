// Small models of every family, compiled for a mesh and ready to train, for the tests in this
// folder.
#pragma once

#include <memory>

#include "heddle/compile/plan/presets/presets.h"
#include "heddle/run/train/session.h"
#include "heddle/run/verify/eager_run.h"

namespace heddle {

struct Debug {
  const char* family;
  const char* flavor;
  DType compute;
  // 0: the narrow model's.
  int64_t key_heads = 0;
  // Rows have documents of five tokens on average, and attention does not cross their boundaries.
  bool documents = false;
};
inline constexpr run::ContextSplit kInOrder = {};
inline constexpr run::ContextSplit kHeadTail = {.head_tail = true};
inline constexpr run::ContextSplit kByHeads = {.heads = true};
inline constexpr run::ContextSplit kRing = {.ring = true};
inline constexpr run::ContextSplit kRingHeadTail = {.ring = true, .head_tail = true};
struct Layout {
  const char* name;
  int64_t replicate;
  int64_t shard;
  int64_t tensor = 1;
  bool sequence_parallel = true;
  bool split_loss = true;
  int64_t expert = 1;
  int64_t expert_tensor = 1;
  int64_t context = 1;
  run::ContextSplit context_split = {};
};

// A job: a model and its local graph on a mesh [rep, dp, cp, tp], with `rows` sequences per part of
// the batch.
class SmallJob {
 public:
  SmallJob(const Debug& debug, const Layout& layout, int64_t rows = 2, int64_t seq_len = 16);

  const run::Model& model() const { return *model_; }
  Module& local() { return local_; }

  Result<std::unique_ptr<run::Session>> MakeSession(
      const Module& module, const run::Reducer& reducer = run::Reducer()) const;
  Result<std::unique_ptr<run::TrainingRun>> MakeEager(
      const run::Reducer& reducer = run::Reducer()) const;

 private:
  run::BatchSource Batches() const;

  Layout layout_;
  // Runs refer to it.
  std::unique_ptr<run::Model> model_;
  Module local_;
};

}  // namespace heddle
