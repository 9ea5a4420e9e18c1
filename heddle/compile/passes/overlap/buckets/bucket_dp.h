// Divides a sequence of collectives into buckets of neighbours by dynamic programming.
//
// A sequence runs on one communicator, alongside compute that takes `compute` if it never waits. A
// bucket begins when the previous one is done, all its members are released, and enough memory is
// free. Compute stalls if a bucket is not done when its first member is needed. Packing on the
// compute stream delays everything after it. Other collectives of the communicator are launched
// when they are needed, between the jobs. The solution is optimal among all ways to divide the
// sequence.
#pragma once

#include <functional>
#include <vector>

#include "heddle/price/cost/cost_model.h"

namespace heddle::compile {

struct BucketJob {
  // Times of compute that never waits; INT64_MAX if no node needs the result.
  Nanos release;
  Nanos deadline;
  // Input bytes of one rank, and memory that is alive from the start to the deadline.
  Bytes given;
  Bytes held;
  // The maximum memory of a bucket with this job.
  Bytes room;
  // Other work of the communicator between the previous job and this one, and its deadline.
  Nanos others;
  Nanos others_due{INT64_MAX};
};

struct BucketProblem {
  std::vector<BucketJob> jobs;
  Nanos compute;
  // Other work of the communicator after the last job, and its deadline.
  Nanos others;
  Nanos others_due{INT64_MAX};
  // The price of jobs [first, last) in one bucket.
  std::function<price::BucketCost(size_t first, size_t last)> price;
};

// The begins of the buckets with which the step ends first; among equals, the fewest buckets.
std::vector<size_t> ChooseBuckets(const BucketProblem& problem);

}  // namespace heddle::compile
