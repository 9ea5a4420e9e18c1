// The plans that a search found, as one self-contained HTML page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/search/arrangement/plan_search.h"

namespace heddle {

struct SearchRow {
  // `1`, or the publisher of a known configuration.
  std::string name;
  search::SearchPoint point;
  double tokens_per_second = 0;
  search::StepOutcome outcome;
  // The command that runs it or writes its job; empty for a published row.
  std::string command;
  // The plan as text.
  std::string text;
  bool published = false;
};

struct SearchPage {
  // `llama3 8B`
  std::string model;
  std::string cluster;
  int64_t devices = 1;
  // Sequences per step on all devices.
  int64_t sequences = 1;
  int64_t seq_len = 1;
  Bytes budget;
  // The fastest first. Not empty.
  std::vector<SearchRow> rows;
  std::optional<search::MethodChoice> methods;
  // The sentence about pipelines, or empty.
  std::string pipeline;
  size_t points = 0;
  size_t tried = 0;
  size_t pruned = 0;
};

// Why the first plan is faster than the second: `Plan 1 is 1.3 % faster than plan 2: 2.10 ms less
// exposed communication, and compute takes 9.80 ms less because backward recomputes nothing instead
// of min-cut; it needs 17.30 GiB more memory.`
std::string WhyFaster(const SearchRow& first, const SearchRow& second);

// Why a method of context parallelism is the better one: `dp 8, cp 8 ulysses moves 3.25 GiB for
// context parallelism, of which 12.30 ms is exposed. With allgather, it would move 6.50 GiB, 40.10
// ms exposed, compute would take 1.20 ms more, and the step 3.1 % longer.`
std::string WhyMethod(const search::MethodChoice& methods);

// Names the best pipeline and compares it with plan 1: `The best pipeline, pp 4, dp 16, 8
// micro-batches, ZBVZeroBubble, takes 912.40 ms, 14.1 % more than plan 1. It needs 21.30 GiB. No
// order of its work takes less than 880.10 ms (gap 3.7 %).` Empty if no pipeline fits.
std::string WhyPipeline(const search::SearchResult& result);

// A chart of speed against memory, a table, and the command and text of each plan.
std::string FormatSearchPage(const SearchPage& page);

}  // namespace heddle
