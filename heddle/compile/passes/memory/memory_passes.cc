#include "heddle/compile/passes/memory/memory_passes.h"

#include "heddle/core/base/text.h"

namespace heddle::compile {

std::string CheckpointPipeline(std::string_view policy) {
  return fmt::format("checkpoint{{policy={}}}, rematerialize", Quoted(policy));
}

}  // namespace heddle::compile
