// Pipelines as text: `clean, bucket{max_bytes=64MiB}, repeat{dce, cse}`.
//
// Items run in order. An item is a pass with options, the name of a pipeline, which expands to its
// text, or `repeat{...}`, which runs its items again until none changes the graph.
//
// A pass that may round differently must be requested by name: the user writes the name of the
// pass. The name of a pipeline is not enough, unless its text has the pass in `rounding{...}`.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/compile/manager/pass.h"
#include "heddle/core/base/result.h"

namespace heddle::compile {

struct PipelineItem {
  // Null for a repeat.
  const PassDef* pass = nullptr;
  std::shared_ptr<void> options;
  std::vector<PipelineItem> repeated;
  // Whether the pass was requested by name and may therefore round.
  bool named = false;
};
using Pipeline = std::vector<PipelineItem>;

// The author of the text. A pass that the program names is not requested by the user.
enum class Author : bool { kUser, kProgram };

Result<Pipeline> ParsePipeline(std::string_view text, const PassTable& passes,
                               Author author = Author::kUser);
// Expands named pipelines, and prints only options that differ from their defaults. The text parses
// back to the same items, all of them requested by name.
std::string Format(const Pipeline& pipeline);
std::string Format(const PipelineItem& item);

}  // namespace heddle::compile
