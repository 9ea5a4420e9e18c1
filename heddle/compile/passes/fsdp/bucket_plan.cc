#include "heddle/compile/passes/fsdp/bucket_plan.h"

#include <algorithm>

#include "heddle/compile/plan/patterns.h"
#include "heddle/core/base/text.h"

namespace heddle::compile {
namespace {

// Whether the parameter is in a module that the pattern matches, or in one of its submodules.
bool Holds(std::string_view pattern, const Input& param) {
  for (std::string_view path : ScopePaths(param.label)) {
    if (MatchesPattern(pattern, path)) return true;
  }
  return false;
}

}  // namespace

Result<BucketPlan> BucketPlan::Parse(std::string_view text) {
  BucketPlan plan;
  if (Trim(text).empty()) return plan;
  for (std::string_view part : Split(text, ';')) {
    Group group{std::string(Trim(part)), {}};
    for (std::string_view pattern : Split(group.text, ' ')) {
      if (!Trim(pattern).empty()) group.patterns.emplace_back(Trim(pattern));
    }
    if (group.patterns.empty())
      return Error(Diag::kPassOption, "the group plan `{}` has an empty group", text);
    plan.groups_.push_back(std::move(group));
  }
  return plan;
}

Status BucketPlan::Check(const Graph& graph) const {
  std::vector<const Input*> params;
  for (const Input& input : graph.inputs()) {
    if (input.role == InputRole::kParam) params.push_back(&input);
  }
  for (const Group& group : groups_) {
    for (const std::string& pattern : group.patterns) {
      bool known = std::ranges::any_of(params, [&](const Input* p) { return Holds(pattern, *p); });
      if (!known)
        return Error(Diag::kPassOption, "`{}` matches no module with a parameter", pattern);
    }
  }
  for (const Input* param : params) {
    const Group* first = nullptr;
    for (const Group& group : groups_) {
      bool holds = std::ranges::any_of(group.patterns,
                                       [&](const std::string& p) { return Holds(p, *param); });
      if (holds && first != nullptr)
        return Error(Diag::kPassOption, "`{}` is in two groups: `{}` and `{}`", param->label,
                     first->text, group.text);
      if (holds) first = &group;
    }
  }
  return Done{};
}

std::string BucketPlan::GroupOf(const Input& param) const {
  for (const Group& group : groups_) {
    for (const std::string& pattern : group.patterns) {
      // Cannot be the name of a unit.
      if (Holds(pattern, param)) return ";" + group.text;
    }
  }
  return "";
}

}  // namespace heddle::compile
