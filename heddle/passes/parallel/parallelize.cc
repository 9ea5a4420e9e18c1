#include "heddle/passes/parallel/parallelize.h"

#include "heddle/base/text.h"

namespace heddle {

std::string PlanningPipeline(std::string_view plan) {
  std::string text = Quoted(plan);
  return fmt::format("propagate{{plan={}}}, insert-redistributions{{plan={}}}", text, text);
}

std::string LoweringPipeline(bool reduce_first) {
  return fmt::format("lower{{reduce_first={}}}, localize", reduce_first);
}

}  // namespace heddle
