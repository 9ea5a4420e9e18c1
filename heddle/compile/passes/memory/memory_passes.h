// The passes that decide what backward recomputes, and carry it out.
#pragma once

#include <string>
#include <string_view>

namespace heddle::compile {

// Carries out marks on values.
inline constexpr std::string_view kCarryOut = "rematerialize, offload";

// For a policy of the pass `checkpoint`.
std::string CheckpointPipeline(std::string_view policy);

}  // namespace heddle::compile
