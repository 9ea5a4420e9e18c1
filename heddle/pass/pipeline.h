// Pipelines as text: `clean, bucket{max_bytes=64MiB}, repeat{dce, cse}`.
//
// Items run in order. An item is a pass with its options, the name of a pipeline, which stands for its text, or
// `repeat{...}`, which runs its items again until none of them changes anything.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/result.h"
#include "heddle/pass/pass.h"

namespace heddle {

struct PipelineItem {
  // Null for a repeat.
  const PassDef* pass = nullptr;
  std::shared_ptr<void> options;
  std::vector<PipelineItem> repeated;
};
using Pipeline = std::vector<PipelineItem>;

Result<Pipeline> ParsePipeline(std::string_view text, const PassTable& passes);
// Named pipelines expanded, options that differ from their defaults shown. Parses back to the same pipeline.
std::string Format(const Pipeline& pipeline);
std::string Format(const PipelineItem& item);

}  // namespace heddle
