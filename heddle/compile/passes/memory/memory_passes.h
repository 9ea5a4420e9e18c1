// Passes that decide what backward recomputes, and apply the decisions.
#pragma once

#include <string>
#include <string_view>

namespace heddle::compile {

// Applies marks on values.
inline constexpr std::string_view kCarryOut = "rematerialize, offload";

// The pipeline for a policy of the pass `checkpoint`.
std::string CheckpointPipeline(std::string_view policy);

}  // namespace heddle::compile
