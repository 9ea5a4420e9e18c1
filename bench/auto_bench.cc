// Measures the search for a plan: listing choices, pricing, building the problem, solving it.
//
//   heddle capture --model=llama3 --flavor=8B --training.seq_len=8192 \
//     --training.local_batch_size=32 -o 8b.hd
//   build/heddle-auto-bench 8b.hd dp=32,tp=8
#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>

#include "heddle/core/base/clock.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"
#include "heddle/search/placement/auto_plan.h"

namespace heddle {
namespace {

constexpr int kRepeats = 3;
constexpr double kSeconds = 100;

struct Times {
  double pricing = HUGE_VAL;
  double solving = HUGE_VAL;
  double again = HUGE_VAL;
};

// Solves the problem, and a second time with one parameter that must not keep its placement.
Status Measure(const Module& module, const compile::Plan& plan, const price::CostModel& model) {
  Times least;
  // The same work as the limit counts it (limit.h).
  Times work;
  search::AutoPlan found;
  for (int i = 0; i < kRepeats; ++i) {
    search::WorkLimit limit(search::WorkAmount::Work(kSeconds));
    Clock pricing;
    HEDDLE_TRY(search::AutoPlanner planner, search::AutoPlanner::Make(module, plan, model, limit));
    least.pricing = std::min(least.pricing, Seconds(pricing.Elapsed()));
    work.pricing = kSeconds * (1 - limit.ShareLeft());
    Clock solving;
    HEDDLE_TRY(found, planner.Find({}));
    least.solving = std::min(least.solving, Seconds(solving.Elapsed()));
    work.solving = kSeconds * (1 - limit.ShareLeft()) - work.pricing;
    const std::vector<search::Decision>& all = planner.decisions().all;
    auto store = std::ranges::find_if(all, [](const search::Decision& d) {
      return d.kind == search::Decision::Kind::kStore && !d.is_given;
    });
    if (store == all.end() || store->choices.size() < 2) continue;
    auto number = static_cast<uint32_t>(store - all.begin());
    uint32_t other = found.x[number] == 0 ? 1 : 0;
    Clock again;
    HEDDLE_RETURN_IF_ERROR(
        planner.Solve({.demands = {{search::VariableId(number), "what if", {other}}}}));
    least.again = std::min(least.again, Seconds(again.Elapsed()));
  }
  fmt::print("choices {}, cost {}, gap {:.4f} %\n", found.size.choices, Format(found.cost),
             100 * (1 - static_cast<double>(found.bound.value) /
                            static_cast<double>(found.objective.value)));
  fmt::print("list and price {:.3f} s, solve {:.3f} s, solve with one demand {:.3f} s\n",
             least.pricing, least.solving, least.again);
  fmt::print("as work: list and price {:.3f} s, solve {:.3f} s\n", work.pricing, work.solving);
  return Done{};
}

Status Run(const std::string& file, const std::string& mesh) {
  std::ifstream in(file);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  HEDDLE_TRY(Module module, ParseModule(text, file, Ops()));
  HEDDLE_TRY(compile::Plan plan,
             compile::ParsePlan(fmt::format("heddle plan 1\nmesh [{}]\nauto\n", mesh), "plan"));
  HEDDLE_TRY(price::Cluster cluster, price::LoadCluster("h100-8x"));
  HEDDLE_TRY(price::CostModel model, price::CostModel::Make(std::move(cluster), {}));
  return Measure(module, plan, model);
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: heddle-auto-bench FILE MESH\n");
    return 1;
  }
  heddle::Status status = heddle::Run(argv[1], argv[2]);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}", heddle::Format(status.diagnostics()));
  return 1;
}
