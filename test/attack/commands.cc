#include "test/attack/commands.h"

#include "heddle/core/base/file.h"
#include "heddle/core/base/hash.h"

namespace heddle {
namespace {

constexpr const char* kStages[] = {"captured", "planned", "lowered", "final"};

void Put(const char* file, std::string_view text) {
  Status written = WriteFile(file, text);
  HEDDLE_CHECK(written.ok(), Format(written.diagnostics()));
}

class Attacker {
 public:
  Attacker(const Corpus& corpus, AttackDice& dice, const TryCommand& attempt)
      : corpus_(corpus), dice_(dice), try_(attempt) {}

  bool Run() {
    AttackGraph graph = MakeAttackGraph(corpus_, dice_);
    Put(kGraphFile, graph.graph);
    Put(kOriginalFile, graph.from->graph);
    Solve();
    if (!try_({"check", kGraphFile})) return false;
    Look();
    for (const std::string& pass : corpus_.passes) Optimize(pass);
    Optimize(dice_.Pick(corpus_.pipelines));
    Optimize(fmt::format("repeat{{{}, {}}}, {}", dice_.Pick(corpus_.pipelines),
                         dice_.Pick(corpus_.pipelines), dice_.Pick(corpus_.pipelines)));
    for (int i = 0; i < 4; ++i) Spread(MakeAttackPlan(corpus_, graph, dice_));
    if (dice_.OneIn(16)) Reduce();
    return true;
  }

 private:
  // Runs the commands that do not change graphs.
  void Look() {
    try_({"opt", kGraphFile});
    try_({"stats", kGraphFile});
    try_({"diff", kOriginalFile, kGraphFile});
    Args json =
        dice_.OneIn(2) ? Args{"stats", kGraphFile} : Args{"diff", kGraphFile, kOriginalFile};
    json.emplace_back("--json");
    try_(json);
    Simulate(kGraphFile);
  }

  void Simulate(const char* file) {
    constexpr const char* kWays[] = {
        "--fuse",        "--collectives=nccl-2.27", "--cluster=cpu",
        "--slowdown=50", "--rules=autoparallel",    "--memory-cap=1MiB"};
    constexpr const char* kForms[] = {"--json", "--timeline", "--trace=-", "--tokens=8",
                                      "--html=-"};
    try_({"sim", file, dice_.Pick(kWays), dice_.Pick(kForms)});
    if (dice_.OneIn(4))
      try_({"report", file, fmt::format("--against={}", file), dice_.Pick(kForms)});
  }

  void Optimize(const std::string& pipeline) {
    Args args{"opt", kGraphFile, "--pipeline=" + pipeline};
    if (dice_.OneIn(8)) args.emplace_back("--remarks");
    try_(args);
  }

  void Spread(const std::string& plan) {
    Put(kPlanFile, plan);
    Args args{"parallelize", kGraphFile, fmt::format("--plan={}", kPlanFile), "--time-limit=1s"};
    if (dice_.OneIn(4)) args.emplace_back("--parallelism.reduce_before_scatter");
    if (dice_.OneIn(8)) args.emplace_back("--remarks");
    if (!try_(args)) return;
    args.emplace_back(fmt::format("--stage={}", dice_.Pick(kStages)));
    try_(args);
    args.back() = "--json";
    if (dice_.OneIn(4)) try_(args);
    args.back() = "-o";
    args.emplace_back(kLocalFile);
    if (try_(args)) Simulate(kLocalFile);
    SpreadAgain(args);
  }

  // Parallelizes the output again, with the same plan.
  void SpreadAgain(Args args) {
    args = {args[0], kGraphFile, args[2], "--time-limit=1s", "--stage=planned", "-o", kPlannedFile};
    if (!try_(args)) return;
    try_({"check", kPlannedFile});
    try_({"parallelize", kPlannedFile, args[2], "--time-limit=1s"});
    try_({"opt", kPlannedFile, "--pipeline=lower, localize, clean"});
  }

  void Solve() {
    constexpr const char* kFlags[] = {"--json", "--budget=memory=2", "--budget=memory=1e300",
                                      "--time-limit=0s"};
    Put(kProblemFile, MakeAttackProblem(corpus_, dice_));
    try_({"solve", kProblemFile, "--time-limit=1s"});
    try_({"solve", kProblemFile, dice_.Pick(kFlags)});
  }

  void Reduce() {
    const std::string& pipeline = dice_.Pick(corpus_.pipelines);
    const char* error = dice_.OneIn(2) ? "--crash" : "--error=[";
    try_({"reduce", kGraphFile, "--pipeline=" + pipeline, error, "--trial-seconds=1"});
  }

  const Corpus& corpus_;
  AttackDice& dice_;
  const TryCommand& try_;
};

}  // namespace

bool AttackWith(const Corpus& corpus, uint64_t seed, uint64_t number, const TryCommand& attempt) {
  AttackDice dice(MixHash(seed, number));
  return Attacker(corpus, dice, attempt).Run();
}

}  // namespace heddle
