#include "heddle/pass/manager.h"

#include <algorithm>

#include "heddle/base/clock.h"
#include "heddle/base/file.h"
#include "heddle/ir/print.h"
#include "heddle/ir/structural_hash.h"
#include "heddle/ir/verify.h"

namespace heddle {
namespace {

// A repeat that does not settle by then is a pass that undoes another.
constexpr int kMaxRounds = 100;

// The roles of a module, as text, sorted: what a pass must not lose. Units are left out where a plan may change them.
std::vector<std::string> Roles(const Module& module, bool units) {
  std::vector<std::string> roles;
  for (const Graph& graph : module.graphs) {
    for (const Input& input : graph.inputs()) {
      roles.push_back(fmt::format("@{} input {} {} \"{}\" unit \"{}\"", graph.name(),
                                  Name(input.role), input.index, input.label,
                                  units ? std::string_view(input.unit) : std::string_view()));
    }
    for (const Output& output : graph.outputs()) {
      std::string_view target = output.target ? graph.name(output.target) : std::string_view();
      roles.push_back(fmt::format("@{} output {} {} \"{}\" {}", graph.name(), Name(output.role),
                                  output.index, output.label, target));
    }
  }
  std::ranges::sort(roles);
  return roles;
}

class Manager {
 public:
  Manager(Module& module, const ManagerOptions& options) : module_(module), options_(options) {}

  Result<RunReport> Run(const Pipeline& pipeline) {
    Clock clock;
    if (!options_.dump_dir.empty()) HEDDLE_RETURN_IF_ERROR(MakeDirectories(options_.dump_dir));
    hash_ = StructuralHash(module_);
    HEDDLE_RETURN_IF_ERROR(RunItems(pipeline));
    report_.total = clock.Elapsed();
    return std::move(report_);
  }

 private:
  bool stopped() const {
    return options_.stop_after >= 0 &&
           static_cast<int64_t>(report_.passes.size()) >= options_.stop_after;
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
    for (int round = 0; round < kMaxRounds; ++round) {
      HEDDLE_TRY(Changed changed, RunItems(item.repeated));
      if (changed == Changed::kNo || stopped()) return round == 0 ? changed : Changed::kYes;
    }
    return Error(Diag::kNoFixpoint, "`{}` still changes the module after {} rounds", Format(item),
                 kMaxRounds);
  }

  Result<Changed> RunPass(const PipelineItem& item) {
    const PassDef& pass = *item.pass;
    if (!pass.any_view && module_.view != pass.needs) {
      return Error(Diag::kPassView, "{} needs a {} module, this one is {}", pass.name,
                   Name(pass.needs), Name(module_.view));
    }
    PassRecord record{options_.passes_before + static_cast<int64_t>(report_.passes.size()) + 1,
                      Format(item),
                      Changed::kNo,
                      {},
                      {},
                      {}};
    Module before = module_;
    CrashScope scope(*this, before, record);
    PassContext context(module_.mesh);
    Clock clock;
    Result<Changed> changed = pass.run(module_, item.options.get(), context);
    record.time = clock.Elapsed();
    // The user's mistake, in the pass's words.
    if (!changed.ok()) {
      for (Diagnostic& diagnostic : changed.diagnostics())
        diagnostic.message = fmt::format("{}: {}", pass.name, diagnostic.message);
      return std::move(changed).failure();
    }
    record.changed = *changed;
    Status checked = Check(pass, before, *changed);
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
    if (!changed) return Done{};
    HEDDLE_RETURN_IF_ERROR(Verify(module_));
    if (pass.changes_signature) return Done{};
    std::vector<std::string> old_roles = Roles(before, !pass.sets_units);
    std::vector<std::string> new_roles = Roles(module_, !pass.sets_units);
    if (old_roles == new_roles) return Done{};
    std::vector<std::string> lost;
    std::ranges::set_difference(old_roles, new_roles, std::back_inserter(lost));
    return Error(Diag::kLostRole, "{} lost {} and left {} roles of {}", pass.name,
                 lost.empty() ? "no role" : lost[0], new_roles.size(), old_roles.size());
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

  // Writes a reproducer if a HEDDLE_CHECK fails while a pass runs.
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
  // Of the module as it is now.
  Hash128 hash_;
};

}  // namespace

Result<RunReport> RunPipeline(Module& module, const Pipeline& pipeline,
                              const ManagerOptions& options) {
  return Manager(module, options).Run(pipeline);
}

}  // namespace heddle
