// Problems of placing Llama 3 8B on a mesh, with known optima; see problems/README.md.
#include <gtest/gtest.h>

#include "heddle/core/base/file.h"
#include "heddle/search/solve/problem/problem_file.h"
#include "heddle/search/solve/solve.h"

namespace heddle {
namespace {

struct KnownProblem {
  const char* file;
  // Negative: the file's own budgets.
  double memory;
  double optimum;
};

class KnownProblems : public testing::TestWithParam<KnownProblem> {};

TEST_P(KnownProblems, HaveTheirOptimum) {
  std::string path = std::string(HEDDLE_PROBLEMS) + "/" + GetParam().file + ".json.gz";
  Result<std::string> bytes = ReadFile(path);
  ASSERT_TRUE(bytes.ok()) << Format(bytes.diagnostics());
  Result<search::ProblemFile> file = search::ParseProblem(*bytes, path);
  ASSERT_TRUE(file.ok()) << Format(file.diagnostics());
  if (GetParam().memory >= 0) {
    file->problem.budgets[0].lo = 0;
    file->problem.budgets[0].hi = GetParam().memory;
  }
  search::PairwiseAnswer answer = search::Solve(file->problem);
  EXPECT_TRUE(answer.proved());
  EXPECT_NEAR(answer.objective, GetParam().optimum, 1e-9 * GetParam().optimum);
  EXPECT_EQ(search::Cost(file->problem, answer.x), answer.objective);
  for (const search::PairwiseBudget& budget : file->problem.budgets)
    EXPECT_TRUE(search::Keeps(budget, search::Amount(budget, answer.x)));
}

INSTANTIATE_TEST_SUITE_P(Llama8B, KnownProblems,
                         testing::Values(KnownProblem{"llama8b_2L_1d64", -1, 238955.09999101586},
                                         KnownProblem{"llama8b_2L_32x8", -1, 61537.76952262281},
                                         KnownProblem{"llama8b_32L_1d64", -1, 2382848.1150121246},
                                         KnownProblem{"llama8b_2L_32x8", 21, 58861.54927487987},
                                         KnownProblem{"llama8b_2L_32x8", 2, 59011.554336573055},
                                         KnownProblem{"llama8b_2L_32x8", 0.5, 60696.380152301965},
                                         KnownProblem{"llama8b_2L_32x8", 0.15, 61481.68690039863}),
                         [](const testing::TestParamInfo<KnownProblem>& info) {
                           const KnownProblem& known = info.param;
                           return known.memory < 0 ? std::string(known.file)
                                                   : fmt::format("{}_memory_{}_percent", known.file,
                                                                 100 * known.memory);
                         });

}  // namespace
}  // namespace heddle
