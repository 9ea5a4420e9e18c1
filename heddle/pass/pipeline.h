// Pipelines as text: `clean, bucket{max_bytes=64MiB}, repeat{dce, cse}`.
//
// Items run in order. An item is a pass with its options, the name of a pipeline, which stands for its text, or
// `repeat{...}`, which runs its items again until none of them changes anything.
//
// A pass that may round differently has to be asked for by name. The text of a user does that where it names the pass itself. A
// pipeline that has a name does it with `rounding{...}`: passes named in these braces may round.
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
  // Whether the pass was asked for by name, so that it may round.
  bool named = false;
};
using Pipeline = std::vector<PipelineItem>;

// Whose text it is. The program may name any pass; that does not say that its user wants it to round.
enum class Author : bool { kUser, kProgram };

Result<Pipeline> ParsePipeline(std::string_view text, const PassTable& passes,
                               Author author = Author::kUser);
// Named pipelines expanded, options that differ from their defaults shown. Parses back to the same items, all asked for by name.
std::string Format(const Pipeline& pipeline);
std::string Format(const PipelineItem& item);

}  // namespace heddle
