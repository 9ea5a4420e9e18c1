// Buckets of one sequence of collectives, by dynamic programming: which neighbours to launch together.
//
// A sequence runs on one communicator beside compute that takes `compute` by itself. A bucket begins when the one before is done
// and all of its members are released, and compute stands still if it is not done when the first member is needed. What packing
// takes on the compute stream moves everything behind it. A bucket begins when what was needed before has let go of enough memory
// for it. Other collectives of the communicator are launched as they are needed, between the jobs. The answer is the best of all ways to cut the sequence.
#pragma once

#include <functional>
#include <vector>

#include "heddle/price/cost/cost_model.h"

namespace heddle::compile {

struct BucketJob {
  // By the clock of compute that never stands still; INT64_MAX for what nobody needs.
  Nanos release;
  Nanos deadline;
  // What one rank hands in, and what is alive from the start until the deadline.
  Bytes given;
  Bytes held;
  // The most that a bucket with this job may hold.
  Bytes room;
  // What else the communicator does between the job before and this one, and when that is needed.
  Nanos others;
  Nanos others_due{INT64_MAX};
};

struct BucketProblem {
  std::vector<BucketJob> jobs;
  Nanos compute;
  // What else the communicator does behind the last job, and when that is needed.
  Nanos others;
  Nanos others_due{INT64_MAX};
  // The price of jobs from `first` up to `last` together.
  std::function<price::BucketCost(size_t first, size_t last)> price;
};

// The begins of buckets that end the step first; of equal ones, fewer.
std::vector<size_t> ChooseBuckets(const BucketProblem& problem);

}  // namespace heddle::compile
