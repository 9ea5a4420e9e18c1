// Modules that share buckets, as text: groups separated by `;`, each a list of module patterns.
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
  // An empty text has no groups.
  static Result<BucketPlan> Parse(std::string_view text);

  // Fails if a pattern matches no module with parameters, or if a parameter is in two groups.
  Status Check(const Graph& graph) const;
  // The text of the group that contains the parameter, or empty.
  std::string GroupOf(const Input& param) const;

 private:
  struct Group {
    std::string text;
    std::vector<std::string> patterns;
  };
  std::vector<Group> groups_;
};

}  // namespace heddle::compile
