#include "heddle/compile/adjust_pipeline.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "heddle/core/base/text.h"

namespace heddle::compile {
namespace {

// Returns the number of passes that accepted the value.
Result<int> Set(const OptionSetting& setting, Pipeline& items) {
  int count = 0;
  for (PipelineItem& item : items) {
    HEDDLE_TRY(int inside, Set(setting, item.repeated));
    count += inside;
    if (item.pass == nullptr) continue;
    if (std::ranges::find(setting.passes, item.pass->name) == setting.passes.end()) continue;
    auto option = std::ranges::find(item.pass->options, setting.option, &OptionDef::name);
    HEDDLE_CHECK(option != item.pass->options.end(), "a flag sets an option that the pass lacks");
    Status set = option->set(item.options.get(), setting.value);
    if (!set.ok()) {
      Diagnostic why = set.diagnostics()[0];
      why.message = fmt::format("{}: {}", setting.flag, why.message);
      return Failure{{std::move(why)}};
    }
    ++count;
  }
  return count;
}

// Returns whether the pass was added, because the pipeline lacked it.
bool Add(const PassAddition& addition, const PassTable& passes, Pipeline& items) {
  auto is = [](std::string_view name) {
    return [name](const PipelineItem& item) {
      return item.pass != nullptr && item.pass->name == name;
    };
  };
  if (std::ranges::any_of(items, is(addition.pass))) return false;
  const PassDef* pass = passes.Find(addition.pass);
  HEDDLE_CHECK(pass != nullptr, "a flag adds an unknown pass");
  items.insert(
      std::ranges::find_if(items, is(addition.before)),
      PipelineItem{.pass = pass, .options = pass->make_options(), .repeated = {}, .named = true});
  return true;
}

int Remove(std::string_view pass, Pipeline& items) {
  int count = 0;
  for (PipelineItem& item : items) count += Remove(pass, item.repeated);
  return count + static_cast<int>(std::erase_if(items, [&](const PipelineItem& item) {
           return item.pass != nullptr && item.pass->name == pass;
         }));
}

}  // namespace

Result<std::vector<std::string>> AdjustPipeline(const PipelineChanges& changes,
                                                const PassTable& passes, Pipeline& pipeline) {
  std::vector<std::string> notes;
  for (const PassAddition& addition : changes.added) {
    if (!Add(addition, passes, pipeline))
      notes.push_back(
          fmt::format("{} has no effect: the pipeline has {}", addition.flag, addition.pass));
  }
  for (const OptionSetting& setting : changes.settings) {
    HEDDLE_TRY(int count, Set(setting, pipeline));
    if (count == 0)
      notes.push_back(fmt::format("{} has no effect: the pipeline has no {}", setting.flag,
                                  fmt::join(setting.passes, " and no ")));
  }
  for (const std::string& name : changes.disabled) {
    if (passes.Find(name) == nullptr) {
      std::vector<std::string_view> names;
      for (const PassDef* known : passes.passes) names.push_back(known->name);
      return Error(Diag::kUnknownPass, "unknown pass `{}`{}", name, NearestHint(name, names));
    }
    if (Remove(name, pipeline) == 0)
      notes.push_back(fmt::format("{} is disabled, but the pipeline does not have it", name));
  }
  return notes;
}

}  // namespace heddle::compile
