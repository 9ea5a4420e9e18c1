#include "heddle/price/cost/price_options.h"

namespace heddle::price {

Result<CostModel> PriceOptions::Load() const {
  CostOptions options = *this;
  if (compiled && chosen_execution && *chosen_execution != Execution::kCompiled)
    return Error(Diag::kUsage,
                 "--fuse is another name of --runtime.execution=compiled, and "
                 "--runtime.execution={} is given; drop one",
                 Name(*chosen_execution));
  options.fused = true;
  options.device_program = !on_cpu;
  options.execution = compiled ? Execution::kCompiled : chosen_execution.value_or(execution);
  HEDDLE_TRY(options.expert_skew, ParseExpertSkew(expert_load));
  HEDDLE_TRY(Cluster loaded, LoadCluster(cluster));
  std::optional<MeasuredCosts> measured;
  if (!costs.empty()) {
    HEDDLE_TRY(measured, LoadCosts(costs));
  }
  return CostModel::Make(std::move(loaded), options, std::move(measured));
}

}  // namespace heddle::price
