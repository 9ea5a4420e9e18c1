// Which modules share buckets, as text: groups with `;` between them, each a list of patterns of modules.
//
//   layers.0 layers.1; layers.2 layers.3; norm output
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

class BucketPlan {
 public:
  // An empty text is a plan without groups.
  static Result<BucketPlan> Parse(std::string_view text);

  // A pattern must match a module that has parameters, and no parameter may be in two groups.
  Status Check(const Graph& graph) const;
  // The text of the group that has the parameter, or empty.
  std::string GroupOf(const Input& param) const;

 private:
  struct Group {
    std::string text;
    std::vector<std::string> patterns;
  };
  std::vector<Group> groups_;
};

}  // namespace heddle::compile
