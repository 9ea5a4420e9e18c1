#include "heddle/compile/manager/manager.h"

#include <algorithm>

#include "heddle/compile/manager/preserved.h"
#include "heddle/core/analysis/launch.h"
#include "heddle/core/analysis/memory.h"
#include "heddle/core/base/clock.h"
#include "heddle/core/base/file.h"
#include "heddle/core/base/host.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/check/check_module.h"
#include "heddle/core/ir/structural_hash.h"
#include "heddle/core/ir/text/print.h"

namespace heddle::compile {
namespace {

// Rounds of a repeat before it is checked for cycles.
constexpr int kPlainRounds = 4;
// A repeat that still changes the graph after this many rounds never settles.
constexpr int kMaxRounds = 100;
// Nor does a repeat that makes the module this many times as large. A smaller module counts as
// kSmallModule nodes.
constexpr size_t kMaxGrowth = 64;
constexpr size_t kSmallModule = 64;

size_t NodesOf(const Module& module) {
  size_t nodes = 0;
  for (const Graph& graph : module.graphs) nodes += graph.node_count();
  return nodes;
}

class Manager {
 public:
  Manager(Module& module, const ManagerOptions& options) : module_(module), options_(options) {}

  Result<RunReport> Run(const Pipeline& pipeline) {
    Clock clock;
    if (!options_.allow_rounding) HEDDLE_RETURN_IF_ERROR(CheckRounding(pipeline));
    if (!options_.dump_dir.empty()) HEDDLE_RETURN_IF_ERROR(MakeDirectories(options_.dump_dir));
    if (options_.check) hash_ = StructuralHash(module_);
    if (options_.measure) cost_ = Cost();
    HEDDLE_RETURN_IF_ERROR(RunItems(pipeline));
    report_.total = clock.Elapsed();
    return std::move(report_);
  }

 private:
  bool stopped() const {
    return options_.stop_after >= 0 &&
           static_cast<int64_t>(report_.passes.size()) >= options_.stop_after;
  }

  static Status CheckRounding(const Pipeline& items) {
    for (const PipelineItem& item : items) {
      HEDDLE_RETURN_IF_ERROR(CheckRounding(item.repeated));
      if (item.pass == nullptr || item.pass->numerics != Numerics::kRounding || item.named)
        continue;
      return Error(Diag::kRounding,
                   "{0} may round differently and was not requested by name; name the pass itself, "
                   "or write `rounding{{{0}}}` in the named pipeline",
                   item.pass->name);
    }
    return Done{};
  }

  Result<Changed> RunItems(const Pipeline& items) {
    Changed changed = Changed::kNo;
    for (const PipelineItem& item : items) {
      if (stopped()) break;
      if (item.pass == nullptr) {
        HEDDLE_TRY(Changed one, RunRepeat(item));
        changed = changed | one;
      } else {
        HEDDLE_TRY(Changed one, RunPass(item));
        changed = changed | one;
      }
    }
    return changed;
  }

  Result<Changed> RunRepeat(const PipelineItem& item) {
    Hash128 before;
    size_t nodes = NodesOf(module_);
    for (int round = 0; round < kMaxRounds; ++round) {
      HEDDLE_TRY(Changed changed, RunItems(item.repeated));
      if (changed == Changed::kNo || stopped()) return round == 0 ? changed : Changed::kYes;
      if (NodesOf(module_) > kMaxGrowth * std::max(nodes, kSmallModule))
        return Error(Diag::kNoFixpoint, "`{}` grows the module from {} to {} in {} rounds",
                     Format(item), Counted(static_cast<int64_t>(nodes), "node"), NodesOf(module_),
                     round + 1);
      // One pass may undo the changes of another. Most repeats end before this check is worth its
      // time.
      if (round < kPlainRounds) continue;
      Hash128 now = StructuralHash(module_);
      if (round > kPlainRounds && now == before) return Changed::kYes;
      before = now;
    }
    return Error(Diag::kNoFixpoint, "`{}` still changes the module after {} rounds", Format(item),
                 kMaxRounds);
  }

  Result<Changed> RunPass(const PipelineItem& item) {
    PollHost();
    const PassDef& pass = *item.pass;
    if (!pass.any_view && module_.view != pass.needs) {
      return Error(Diag::kPassView, "{} needs a {} module, this one is {}", pass.name,
                   Name(pass.needs), Name(module_.view));
    }
    if (pass.prices && options_.costs == nullptr)
      return Error(Diag::kPassOption, "{} needs the costs of a cluster; give --cluster", pass.name);
    PassRecord record{options_.passes_before + static_cast<int64_t>(report_.passes.size()) + 1,
                      Format(item),
                      Changed::kNo,
                      {},
                      {},
                      {}};
    // The copy is only for checks.
    Module before = options_.check ? module_ : Module();
    CrashScope scope(*this, before, record);
    PassContext context(module_.mesh, options_.costs);
    Clock clock;
    Result<Changed> changed = pass.run(module_, item.options.get(), context);
    record.time = clock.Elapsed();
    // A pass that fails reports a user error.
    if (!changed.ok()) {
      for (Diagnostic& diagnostic : changed.diagnostics())
        diagnostic.message = fmt::format("{}: {}", pass.name, diagnostic.message);
      return std::move(changed).failure();
    }
    record.changed = *changed;
    Status checked = options_.check ? Check(pass, before, *changed) : Status(Done{});
    if (checked.ok() && options_.measure) {
      record.before = cost_;
      if (*changed == Changed::kYes) cost_ = Cost();
      record.after = cost_;
    }
    if (!checked.ok()) return Reproduce(before, record, std::move(checked.diagnostics()));
    for (std::string_view stat : pass.stats) record.stats.emplace_back(stat, 0);
    for (const auto& [name, count] : context.counts()) {
      auto at = std::ranges::find(record.stats, name, [](const auto& s) { return s.first; });
      HEDDLE_CHECK(at != record.stats.end(),
                   fmt::format("{} counts `{}`, which it does not declare", pass.name, name));
      at->second = count;
    }
    record.remarks = std::move(context.remarks());
    HEDDLE_RETURN_IF_ERROR(Dump(pass, record));
    report_.passes.push_back(std::move(record));
    return *changed;
  }

  Status Check(const PassDef& pass, const Module& before, Changed claimed) {
    Hash128 hash = StructuralHash(module_);
    bool changed = hash != hash_;
    if (changed != (claimed == Changed::kYes)) {
      return Error(Diag::kPassClaim, "{} claims {}, but the module {}: {} before, {} after",
                   pass.name, claimed == Changed::kYes ? "a change" : "no change",
                   changed ? "changed" : "did not change", Format(hash_), Format(hash));
    }
    hash_ = hash;
    if (changed) {
      HEDDLE_RETURN_IF_ERROR(Verify(module_));
      HEDDLE_RETURN_IF_ERROR(CheckPreserved(pass, before, module_));
    }
    if (pass.ensures != nullptr && std::ranges::find(promises_, pass.ensures) == promises_.end())
      promises_.push_back(pass.ensures);
    for (auto holds : promises_) HEDDLE_RETURN_IF_ERROR(holds(module_));
    return Done{};
  }

  ScheduleCost Cost() {
    ScheduleCost cost;
    for (const Graph& graph : module_.graphs) {
      cost.launches +=
          std::ranges::count_if(graph.nodes(), [&](NodeId id) { return IsLaunch(graph, id); });
      cost.peak = std::max(cost.peak, ComputeMemoryTimeline(graph, Liveness(graph)).peak);
    }
    return cost;
  }

  Failure Reproduce(const Module& before, const PassRecord& record, Diagnostics why) {
    for (Diagnostic& diagnostic : why)
      diagnostic.message =
          fmt::format("after pass {} ({}): {}", record.number, record.pass, diagnostic.message);
    why.push_back(MakeDiagnostic(Diag::kReproducer, "{}", WriteReproducer(before, record)));
    return {std::move(why)};
  }

  std::string WriteReproducer(const Module& before, const PassRecord& record) const {
    std::string name = record.pass.substr(0, record.pass.find('{'));
    std::string path = fmt::format("{}/heddle-reproducer.{:04}.{}.hd", options_.reproducer_dir,
                                   record.number, name);
    std::string command = fmt::format("heddle opt --pipeline='{}' {}", record.pass, path);
    Status written = WriteFile(path, fmt::format("// {}\n{}", command, Print(before)));
    if (!written.ok()) return "no reproducer: " + written.diagnostics()[0].message;
    return "to repeat it: " + command;
  }

  Status Dump(const PassDef& pass, const PassRecord& record) const {
    if (options_.dump_dir.empty()) return Done{};
    std::string_view step = module_.graphs.empty() ? std::string_view("empty")
                                                   : std::string_view(module_.graphs[0].name());
    std::string path = fmt::format("{}/{}.{:04}.{}.{}.hd", options_.dump_dir, step, record.number,
                                   pass.name, record.changed == Changed::kYes ? "changed" : "same");
    return WriteFile(path, Print(module_));
  }

  // Writes a reproducer if a HEDDLE_CHECK fails during a pass.
  class CrashScope {
   public:
    CrashScope(const Manager& manager, const Module& before, const PassRecord& record)
        : manager_(manager),
          before_(before),
          record_(record),
          previous_(SetCrashHook({Write, this})) {}
    ~CrashScope() { SetCrashHook(previous_); }
    CrashScope(const CrashScope&) = delete;
    CrashScope& operator=(const CrashScope&) = delete;

   private:
    static void Write(void* self) {
      const auto& scope = *static_cast<const CrashScope*>(self);
      std::string text = scope.manager_.WriteReproducer(scope.before_, scope.record_);
      std::fprintf(stderr, "heddle: in pass %s; %s\n", scope.record_.pass.c_str(), text.c_str());
    }

    const Manager& manager_;
    const Module& before_;
    const PassRecord& record_;
    CrashHook previous_;
  };

  Module& module_;
  const ManagerOptions& options_;
  RunReport report_;
  // Hash of the current module.
  Hash128 hash_;
  ScheduleCost cost_;
  // Invariants that earlier passes established and later passes must keep.
  std::vector<Status (*)(const Module&)> promises_;
};

}  // namespace

Result<RunReport> RunPipeline(Module& module, const Pipeline& pipeline,
                              const ManagerOptions& options) {
  return Manager(module, options).Run(pipeline);
}

}  // namespace heddle::compile
