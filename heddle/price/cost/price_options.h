// PriceOptions: the cluster and files from which a cost model is built. Messages name the fields by
// their flags.
#pragma once

#include <string>

#include "heddle/price/cost/cost_model.h"

namespace heddle::price {

struct PriceOptions : CostOptions {
  // Overrides `execution`.
  std::optional<Execution> chosen_execution = {};
  // The flag `--fuse`, another name of the execution `compiled`.
  bool compiled = false;
  // The step has the kernels of a CPU, whatever the device of the cluster.
  bool on_cpu = false;
  // A name, or a JSON file.
  std::string cluster = "h100-8x";
  // A file with measured times; empty: none.
  std::string costs = {};
  // Distribution of tokens over experts: `uniform`, `zipf:1.2`, or a file.
  std::string expert_load = "uniform";

  Result<CostModel> Load() const;
};

}  // namespace heddle::price
