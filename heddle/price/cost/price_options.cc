#include "heddle/price/cost/price_options.h"

namespace heddle::price {

Result<CostModel> PriceOptions::Load() const {
  CostOptions options = *this;
  HEDDLE_TRY(options.expert_skew, ParseExpertSkew(expert_load));
  HEDDLE_TRY(Cluster loaded, LoadCluster(cluster));
  std::optional<MeasuredCosts> measured;
  if (!costs.empty()) {
    HEDDLE_TRY(measured, LoadCosts(costs));
  }
  return CostModel::Make(std::move(loaded), options, std::move(measured));
}

}  // namespace heddle::price
