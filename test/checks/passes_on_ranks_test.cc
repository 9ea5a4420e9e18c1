// Runs every registered pass on random graphs, and executes each graph before and after the pass.
//
// The test follows the table of passes. A new pass that changes none of these graphs fails by name.
// Patterns that random graphs do not have come from the goldens of the pass.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>

#include <ATen/Parallel.h>
#include <ATen/ops/div.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/manager/reduce.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/core/base/file.h"
#include "heddle/core/base/test/extent.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "heddle/price/cost/cost_model.h"
#include "test/checks/random_graph.h"
#include "test/checks/random_step.h"
#include "test/checks/random_training.h"
#include "test/checks/run_module.h"
#include "test/golden/golden_file.h"

namespace heddle {
namespace {

const uint32_t kLocalGraphs = Extent(80, 250);
const uint32_t kSteps = Extent(70, 300);
const uint32_t kTrainings = Extent(20, 200);
const uint32_t kGoldenSeeds = Extent(3, 30);

Module Read(const std::string& text) {
  Result<Module> module = ParseModule(text, "random", Ops());
  EXPECT_TRUE(module.ok()) << text << Format(module.diagnostics());
  return *module;
}

// The passes before and after a pass that needs a global graph, from a captured step to a local
// graph. The last entry is for passes that accept any graph.
struct Way {
  std::string_view pass;
  std::string_view before;
  std::string_view behind;
};
constexpr Way kWays[] = {
    {"propagate", "", "insert-redistributions, lower, localize"},
    {"insert-redistributions", "propagate", "lower, localize"},
    {"lower", "propagate, insert-redistributions", "localize"},
    {"localize", "propagate, insert-redistributions, lower", ""},
    {"", "propagate, insert-redistributions", "lower, localize"},
};

// Runs a pipeline. Its `propagate` pass gets the plan.
Result<Changed> RunPasses(Module& module, std::string text, const std::string& plan,
                          const compile::PassTable& passes) {
  size_t at = text.find("propagate");
  if (at != std::string::npos) text.insert(at + 9, fmt::format("{{plan={}}}", Quoted(plan)));
  static const TempDir scratch;
  compile::ManagerOptions options;
  options.reproducer_dir = scratch.path();
  static const price::CostModel costs = *price::CostModel::Make(*price::LoadCluster("h100-8x"), {});
  options.costs = &costs;
  HEDDLE_TRY(compile::Pipeline pipeline, compile::ParsePipeline(text, passes));
  HEDDLE_TRY(compile::RunReport report, compile::RunPipeline(module, pipeline, options));
  Changed changed = Changed::kNo;
  for (const compile::PassRecord& record : report.passes) changed = changed | record.changed;
  return changed;
}

// Returns the pass without options, and with each of its switches turned.
std::vector<std::string> Variants(const compile::PassDef& pass) {
  std::vector<std::string> texts{std::string(pass.name)};
  for (const compile::OptionDef& option : pass.options) {
    std::string value = option.get(pass.make_options().get());
    if (value != "true" && value != "false") continue;
    texts.push_back(
        fmt::format("{}{{{}={}}}", pass.name, option.name, value == "true" ? "false" : "true"));
  }
  return texts;
}

// Passes that make or apply decisions which random graphs lack.
struct Prepared {
  std::string_view pass;
  std::string_view text;
};
constexpr Prepared kPrepared[] = {
    {"async-tensor-parallel", "async-tensor-parallel{chunks=2}"},
    {"checkpoint", "checkpoint{policy=min-cut}"},
    {"offload", "checkpoint{policy=min-cut,kept=offload}, offload{prefetch=3}"},
    {"rematerialize", "checkpoint{policy=min-cut}, rematerialize"},
};

// Passes that need consecutive phases. They run on training steps, in this pipeline.
constexpr Prepared kOnTrainings[] = {
    {"join", "partition, join"},
    {"partition", "partition, join"},
};

// Passes for patterns that random graphs do not have: a loss over scores, experts, chains of
// collectives. They run on the inputs of their own goldens. Passes that change the order of
// additions run in f64, so that a wrong sum differs from one that is only rounded differently.
struct OnGoldens {
  std::string_view pass;
  bool in_double;
};
constexpr OnGoldens kOnGoldens[] = {{"chunk-loss", true},     {"chunk-tokens", true},
                                    {"fuse-gathers", false},  {"fuse-scatters", true},
                                    {"ring-attention", true}, {"shortcut-redistributions", false}};

// One pass under test, as the text of a pipeline.
class PassCheck {
 public:
  PassCheck(const compile::PassDef& pass, const compile::PassTable& passes, std::string text)
      : pass_(pass), passes_(passes), text_(std::move(text)) {}
  PassCheck(const compile::PassDef& pass, const compile::PassTable& passes)
      : PassCheck(pass, passes, std::string(pass.name)) {}

  bool takes(View view) const { return pass_.any_view || pass_.needs == view; }
  // Number of runs in which the pass changed the graph.
  int changes() const { return changes_; }

  // The checks return the fault; empty if there is none.

  std::string CheckLocal(const Module& before, uint32_t seed) {
    Module after = before;
    Result<Changed> changed = RunPasses(after, text_, "", passes_);
    if (!changed.ok()) return Format(changed.diagnostics());
    changes_ += *changed == Changed::kYes;
    auto was = RunOnRanks(before, seed);
    if (!was.ok()) return "before: " + Format(was.diagnostics());
    auto is = RunOnRanks(after, seed);
    if (!is.ok()) return "after: " + Format(is.diagnostics());
    for (size_t rank = 0; rank < was->size(); ++rank) {
      std::string why = WhyDifferent((*is)[rank], (*was)[rank], OwnLikeness());
      if (!why.empty()) return fmt::format("differs on rank {}: {}", rank, why);
    }
    return "";
  }

  // Executes a step whole and on ranks. Skips plans that propagate rejects.
  std::string CheckStep(const RandomStep& step, uint32_t seed, NumberKind numbers) {
    const Way* way = FindWay();
    if (way == nullptr) return "no random graph is made for it; see kWays";
    Module before = Read(step.graph);
    if (!RunPasses(before, std::string(way->before), step.plan, passes_).ok()) return "";
    Module after = before;
    Result<Changed> changed = RunPasses(after, text_, step.plan, passes_);
    if (!changed.ok())
      return before.mesh.empty() ? "" : "refuses a plan: " + Format(changed.diagnostics());
    ++steps_;
    changes_ += *changed == Changed::kYes;
    Run run{step, seed, numbers == NumberKind::kWhole};
    std::string why = CompareWhole(run, before, after);
    return why.empty() ? CompareOnRanks(run, *way, before, after) : why;
  }
  // Runs a placed global graph as a whole, and on ranks.
  std::string CheckGlobal(const Module& before, uint32_t seed) {
    Module after = before;
    Result<Changed> changed = RunPasses(after, text_, "", passes_);
    if (!changed.ok()) return Format(changed.diagnostics());
    changes_ += *changed == Changed::kYes;
    const RandomStep none;
    Run run{none, seed, true};
    std::string why = CompareWhole(run, before, after);
    return why.empty() ? CompareOnRanks(run, {"", "", "lower, localize"}, before, after) : why;
  }
  // The number of steps whose plans were accepted.
  uint32_t steps() const { return steps_; }

 private:
  Likeness OwnLikeness() const {
    return pass_.numerics == compile::Numerics::kRounding ? Likeness::kRounded : Likeness::kBits;
  }

  const Way* FindWay() const {
    for (const Way& way : kWays) {
      if (way.pass == pass_.name || (way.pass.empty() && pass_.any_view)) return &way;
    }
    return nullptr;
  }

  struct Run {
    const RandomStep& step;
    uint32_t seed;
    bool whole_numbers;
  };

  // Compares whole outputs. If the pass divides gradients, divides those of `before`, too. An
  // average depends on the placement of gradients, so averaged ones and steps that read gradients
  // are skipped.
  std::string Compare(const Run& run, const Module& before, const Module& after,
                      Likeness likeness) const {
    auto was = RunWhole(before, run.seed, run.whole_numbers);
    if (!was.ok()) return "before: " + Format(was.diagnostics());
    auto is = RunWhole(after, run.seed, run.whole_numbers);
    if (!is.ok()) return "after: " + Format(is.diagnostics());
    bool shrinks = run.step.averages_grads || run.step.grad_divisor != 1.0;
    if (before.mesh.empty() && shrinks) {
      if (run.step.has_optimizer) return "";
      for (size_t o = 0; o < was->size(); ++o) {
        if (before.graphs[0].outputs()[o].role != OutputRole::kGrad) continue;
        (*was)[o] = run.step.averages_grads ? (*is)[o] : at::div((*was)[o], run.step.grad_divisor);
      }
    }
    return WhyDifferent(*is, *was, likeness);
  }

  // Runs both on a single device, if the pass leaves the graph global.
  std::string CompareWhole(const Run& run, const Module& before, const Module& after) const {
    if (after.view != View::kGlobal) return "";
    std::string why = Compare(run, before, after, OwnLikeness());
    return why.empty() ? "" : "differs as a whole: " + why;
  }

  // Lowers the graph to its ranks. For a pass that accepts any graph, this happens before and after
  // the pass, and both run on ranks. For other passes, compares the whole graph before the pass
  // with ranks: equal if sums are exact, near if the pass may round.
  std::string CompareOnRanks(const Run& run, const Way& way, Module before, Module after) const {
    Likeness likeness = run.whole_numbers ? Likeness::kValues : Likeness::kRounded;
    if (way.pass.empty()) {
      likeness = OwnLikeness();
      Result<Changed> spread = RunPasses(before, std::string(way.behind), "", passes_);
      if (!spread.ok()) return "cannot be localized before: " + Format(spread.diagnostics());
    } else if (!run.whole_numbers && pass_.numerics != compile::Numerics::kRounding) {
      return "";
    }
    Result<Changed> spread = RunPasses(after, std::string(way.behind), "", passes_);
    if (!spread.ok()) return "cannot be localized: " + Format(spread.diagnostics());
    std::string why = Compare(run, before, after, likeness);
    return why.empty() ? "" : "differs on ranks: " + why;
  }

  const compile::PassDef& pass_;
  const compile::PassTable& passes_;
  std::string text_;
  int changes_ = 0;
  uint32_t steps_ = 0;
};

// Returns the text of a smaller local graph on which the pass still fails.
std::string Reduced(const compile::PassDef& pass, const compile::PassTable& passes,
                    const std::string& text, const Module& module, uint32_t seed) {
  compile::ReduceModuleOptions options;
  options.error = "differs";
  compile::Trial trial = [&](const Module& smaller) {
    return PassCheck(pass, passes, text).CheckLocal(smaller, seed);
  };
  Result<Module> reduced = compile::ReduceModule(module, trial, options);
  return Print(reduced.ok() ? *reduced : module);
}

class PassesOnRanks : public testing::TestWithParam<const compile::PassDef*> {
 protected:
  // The reducer forks, which threads do not survive.
  PassesOnRanks() { at::set_num_threads(1); }
};

void CheckPass(const compile::PassDef& pass, const std::string& text) {
  PassCheck check(pass, compile::Passes(), text);
  for (uint32_t seed = 0; check.takes(View::kLocal) && seed < kLocalGraphs; ++seed) {
    Module module = Read(RandomLocalGraph(seed));
    std::string why = check.CheckLocal(module, seed);
    ASSERT_EQ(why, "") << text << ", local graph " << seed << "\n"
                       << Reduced(pass, compile::Passes(), text, module, seed);
  }
  // Rejected plans do not count.
  const uint32_t steps = check.takes(View::kGlobal) ? kSteps : 0;
  for (uint32_t seed = 0; check.steps() < steps; ++seed) {
    ASSERT_LT(seed, 10 * kSteps) << "propagate refuses the random plans";
    NumberKind numbers = seed % 3 == 0 ? NumberKind::kReal : NumberKind::kWhole;
    RandomStep step = MakeRandomStep(seed, numbers);
    ASSERT_EQ(check.CheckStep(step, seed, numbers), "") << text << ", step " << seed << "\n"
                                                        << step.graph << step.plan;
  }
  EXPECT_GT(check.changes(), 0) << text << " changes none of these graphs";
}

void CheckOnTrainings(const compile::PassDef& pass, const std::string& text) {
  PassCheck check(pass, compile::Passes(), text);
  for (uint32_t seed = 0; seed < kTrainings; ++seed) {
    Module module = Read(RandomTraining(seed));
    std::string why = check.CheckLocal(module, seed);
    ASSERT_EQ(why, "") << text << ", training step " << seed << "\n"
                       << Reduced(pass, compile::Passes(), text, module, seed);
  }
  EXPECT_GT(check.changes(), 0) << text << " changes none of these steps";
}

struct GoldenInput {
  std::string name;
  std::string graph;
  // The pass with the options of the golden's command.
  std::string pass;
};

// Returns the inputs of all goldens whose command runs this pass.
std::vector<GoldenInput> GoldenInputs(const compile::PassDef& pass) {
  std::vector<GoldenInput> inputs;
  const std::regex runs(fmt::format("--(?:pipeline|pass)=\"?({}(?:\\{{[^}}]*\\}})?)", pass.name));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(HEDDLE_GOLDENS)) {
    if (entry.path().extension() != ".hdt") continue;
    GoldenFile file = ParseGolden(*ReadFile(entry.path()));
    for (const GoldenCase& one : file.cases) {
      std::vector<std::string> lines = RunLines(one.preamble);
      if (lines.empty()) lines = RunLines(file.preamble);
      std::smatch match;
      if (one.must_fail() || lines.empty() || !std::regex_search(lines[0], match, runs)) continue;
      inputs.push_back(
          {entry.path().filename().string() + ":" + one.name, one.input, match[1].str()});
    }
  }
  std::ranges::sort(inputs, {}, &GoldenInput::name);
  return inputs;
}

std::string InDouble(const std::string& graph) {
  return std::regex_replace(graph, std::regex("\\b(bf16|f32)\\b"), "f64");
}

void CheckOnGoldens(const compile::PassDef& pass, bool in_double) {
  int changes = 0;
  for (const GoldenInput& input : GoldenInputs(pass)) {
    SCOPED_TRACE(input.name);
    PassCheck check(pass, compile::Passes(), input.pass);
    Module module = Read(in_double ? InDouble(input.graph) : input.graph);
    // Some goldens contain counts of tokens that do not fit their rows.
    if (module.view == View::kLocal && !RunOnRanks(module, 0).ok()) continue;
    for (uint32_t seed = 0; seed < kGoldenSeeds; ++seed) {
      ASSERT_EQ(module.view == View::kLocal ? check.CheckLocal(module, seed)
                                            : check.CheckGlobal(module, seed),
                "");
    }
    changes += check.changes();
  }
  EXPECT_GT(changes, 0) << pass.name << " changes no input of its goldens that runs";
}

TEST_P(PassesOnRanks, ComputeTheSame) {
  auto on_goldens = std::ranges::find(kOnGoldens, GetParam()->name, &OnGoldens::pass);
  if (on_goldens != std::end(kOnGoldens)) {
    CheckOnGoldens(*GetParam(), on_goldens->in_double);
    return;
  }
  auto training = std::ranges::find(kOnTrainings, GetParam()->name, &Prepared::pass);
  if (training != std::end(kOnTrainings)) {
    CheckOnTrainings(*GetParam(), std::string(training->text));
    return;
  }
  auto prepared = std::ranges::find(kPrepared, GetParam()->name, &Prepared::pass);
  if (prepared != std::end(kPrepared)) {
    CheckPass(*GetParam(), std::string(prepared->text));
    return;
  }
  for (const std::string& text : Variants(*GetParam())) CheckPass(*GetParam(), text);
}

// unroll-pipeline writes several graphs for one, with other inputs. test/pipeline trains them.
std::vector<const compile::PassDef*> PassesOfOneGraph() {
  std::span<const compile::PassDef* const> all = compile::Passes().passes;
  std::vector<const compile::PassDef*> passes(all.begin(), all.end());
  std::erase_if(passes,
                [](const compile::PassDef* pass) { return pass->name == "unroll-pipeline"; });
  return passes;
}

INSTANTIATE_TEST_SUITE_P(All, PassesOnRanks, testing::ValuesIn(PassesOfOneGraph()),
                         [](const auto& info) {
                           std::string name(info.param->name);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// --- Wrong passes, which these checks must catch

// Computes a + (b + c) instead of (a + b) + c.
Result<Changed> Regroup(Graph& graph, compile::PassContext&) {
  Rewriter rewriter(graph);
  for (NodeId id : graph.nodes()) {
    NodeId inner =
        graph[id].op == op::add_Tensor ? graph[graph.operands(id)[0]].producer : NodeId();
    if (!inner || graph[inner].op != op::add_Tensor) continue;
    TypeId type = graph.type(graph[id].first_result);
    std::vector<ValueId> last{graph.operands(inner)[1], graph.operands(id)[1]};
    ResultSpec result{.type = type, .name = "last"};
    NodeId sum = rewriter.InsertBefore(
        id, {.op = op::add_Tensor, .operands = last, .results = {&result, 1}});
    rewriter.SetOperand(id, 0, graph.operands(inner)[0]);
    rewriter.SetOperand(id, 1, graph[sum].first_result);
  }
  return rewriter.Commit();
}
// Adds the summands of ranks in another order.
Result<Changed> TurnGroups(Graph& graph, compile::PassContext&) {
  Rewriter rewriter(graph);
  for (NodeId id : graph.nodes()) {
    if (graph[id].op != op::comm_all_reduce) continue;
    Attrs attrs = graph.attrs(id);
    const Axes over = std::get<Axes>(*attrs.Find("over"));
    if (over.size() != 2) continue;
    Axes turned(over[1]);
    turned.Add(over[0]);
    attrs.Set("over", turned);
    rewriter.SetAttrs(id, graph.InternAttrs(attrs));
  }
  return rewriter.Commit();
}
// Changes nothing.
Result<Changed> Idle(Graph&, compile::PassContext&) { return Changed::kNo; }

constexpr compile::PassDef kRegroup{.name = "regroup", .summary = "", .run = compile::Run<Regroup>};
constexpr compile::PassDef kTurn{.name = "turn", .summary = "", .run = compile::Run<TurnGroups>};
constexpr compile::PassDef kIdle{.name = "idle", .summary = "", .run = compile::Run<Idle>};
constexpr compile::PassDef kNew{.name = "new",
                                .summary = "",
                                .run = compile::Run<Idle>,
                                .any_view = false,
                                .needs = View::kGlobal};
constexpr const compile::PassDef* kLiars[] = {&kRegroup, &kTurn, &kIdle, &kNew};
constexpr compile::PassTable kLiarTable{kLiars, {}};

void ExpectCaught(const compile::PassDef& pass, size_t nodes_left) {
  at::set_num_threads(1);
  PassCheck check(pass, kLiarTable);
  for (uint32_t seed = 0; seed < kLocalGraphs; ++seed) {
    Module module = Read(RandomLocalGraph(seed));
    if (check.CheckLocal(module, seed).find("differs on rank") == std::string::npos) continue;
    Module reduced = Read(Reduced(pass, kLiarTable, std::string(pass.name), module, seed));
    EXPECT_LE(reduced.graphs[0].node_count(), nodes_left) << Print(reduced);
    return;
  }
  ADD_FAILURE() << pass.name << " computes the same on all graphs";
}

TEST(Liars, AnExactPassThatRegroupsIsCaughtAndItsGraphReduced) { ExpectCaught(kRegroup, 3); }
TEST(Liars, AnExactPassThatTurnsGroupsIsCaughtAndItsGraphReduced) { ExpectCaught(kTurn, 3); }

TEST(Liars, APassThatNoGraphIsMadeForIsCaught) {
  PassCheck check(kNew, kLiarTable);
  EXPECT_EQ(check.CheckStep(MakeRandomStep(0, NumberKind::kWhole), 0, NumberKind::kWhole),
            "no random graph is made for it; see kWays");
  PassCheck idle(kIdle, kLiarTable);
  EXPECT_EQ(idle.CheckLocal(Read(RandomLocalGraph(0)), 0), "");
  EXPECT_EQ(idle.changes(), 0);
}

}  // namespace
}  // namespace heddle
