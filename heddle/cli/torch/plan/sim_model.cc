// The model of `heddle sim`: captures, plans and simulates it, and compares it with the same step
// with another pipeline.
#include "heddle/api/simulate.h"
#include "heddle/cli/step/compile_flags.h"
#include "heddle/cli/step/sim.h"
#include "heddle/cli/torch/commands.h"
#include "heddle/cli/torch/job_flags.h"

namespace heddle {
namespace {

class SimulatedModelSource final : public SimulatedSource {
 public:
  void Declare(Flags& flags, const std::string& cluster) override {
    DeclareStep(flags, options_.plan.model, &cluster);
    DeclareParallelism(flags, options_.plan.parallel);
    compile_.Declare(flags);
    DeclareOptimizer(flags, *options_.plan.optimizer, without_optimizer_);
    flags.Section("Comparison");
    flags.Option("--against", options_.against,
                 "pipeline to compare with; the same one as --compile.pipeline: no comparison");
  }

  Status Simulate(const price::PriceOptions& prices, const price::SimulateOptions& options,
                  const SimOutputs& outputs, const Streams& streams) const override {
    const auto& given = options_.plan.model.given;
    if (!given("--model") && !given("--flavor"))
      return Error(Diag::kUsage, "`heddle sim` needs FILE, a graph of one rank, or --model");
    SimulationOptions complete = options_;
    complete.simulate = options;
    complete.plan.prices = prices;
    complete.plan.compile = compile_;
    if (without_optimizer_) complete.plan.optimizer.reset();
    HEDDLE_TRY(complete.plan.parallel, WithPlan(options_.plan.parallel, streams));
    HEDDLE_TRY(SimulationResult result, api::Simulate(complete));
    compile_.Print(result.plan.report, streams);
    compile_.PrintNotes(result.plan.report, streams);
    return outputs.Write(result.modules, result.plan.costs, streams,
                         SimulatedModel{result.plan.device, !without_optimizer_});
  }

 private:
  SimulationOptions options_;
  CompileFlags compile_;
  bool without_optimizer_ = false;
};

}  // namespace

void AddSimWithModel(CommandSet& commands) {
  AddSim(commands, std::make_shared<SimulatedModelSource>());
}

}  // namespace heddle
