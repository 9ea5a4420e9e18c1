// Pipelines as text: `clean, bucket{max_bytes=64MiB}, repeat{dce, cse}`.
//
// Items run in order. An item is a pass with its options, or the name of a pipeline, which stands for its text, or
// `repeat{...}`, which runs its items again until none of them changes anything.
//
// A pass that may round differently must be asked for by name. A user does that by naming the pass itself. The name of a
// pipeline is not enough: its text must have the pass inside of `rounding{...}`, which says that its author knows.
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
  // Whether the pass was asked for by name, so that it may round.
  bool named = false;
};
using Pipeline = std::vector<PipelineItem>;

// Who wrote the text. A pass that the program names was not asked for by its user.
enum class Author : bool { kUser, kProgram };

Result<Pipeline> ParsePipeline(std::string_view text, const PassTable& passes,
                               Author author = Author::kUser);
// Named pipelines are expanded, and only options that differ from their defaults are shown. The text parses back to the
// same items, now all asked for by name.
std::string Format(const Pipeline& pipeline);
std::string Format(const PipelineItem& item);

}  // namespace heddle::compile
