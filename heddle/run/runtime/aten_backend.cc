#include "heddle/run/runtime/aten_backend.h"

#include "heddle/core/ir/text/print.h"
#include "heddle/run/aten/call.h"

namespace heddle::run {
namespace {

// One call for all ranks. The call is a member of the step, so that running a node touches little
// memory.
class AtenStep : public Step {
 public:
  AtenStep(const RunPlan& plan, NodeId node, Turn turn, AtenCall call)
      : Step(turn), plan_(plan), node_(node), call_(std::move(call)) {}

  void Run(size_t, Tensors& values, Scratch& scratch) const override {
    RunCall(call_, values, scratch);
  }

 protected:
  void RunCall(const AtenCall& call, Tensors& values, Scratch& scratch) const {
    plan_.slots().Load(node_, values, scratch.operands);
    call.Run(scratch.operands, scratch.stack, scratch.results);
    HEDDLE_CHECK(scratch.results.size() == plan_.slots().result_count(node_),
                 PrintNode(plan_.module(), plan_.graph(), node_));
    plan_.slots().Store(node_, scratch.results, values);
  }

 private:
  const RunPlan& plan_;
  NodeId node_;
  AtenCall call_;
};

// One call per rank.
class AtenStepByRank : public AtenStep {
 public:
  AtenStepByRank(const RunPlan& plan, NodeId node, Turn turn, std::vector<AtenCall> calls)
      : AtenStep(plan, node, turn, calls[0]), calls_(std::move(calls)) {}

  void Run(size_t at, Tensors& values, Scratch& scratch) const override {
    RunCall(calls_[at], values, scratch);
  }

 private:
  std::vector<AtenCall> calls_;
};

}  // namespace

Result<CompiledNodes> AtenBackend::Compile(NodeId node) {
  const Graph& graph = plan_.graph();
  bool random = graph.op(node).effect() == Effect::kRandom;
  bool by_rank = HasSymbols(graph.attrs(node));
  std::vector<AtenCall> calls;
  for (int64_t rank : plan_.ranks().first(by_rank ? plan_.ranks().size() : 1)) {
    HEDDLE_TRY(AtenCall call, AtenCall::Bind(plan_.module(), graph, node, plan_.device(),
                                             SizesAt(plan_.mesh(), rank)));
    calls.push_back(std::move(call));
  }
  Step::Turn turn = random ? Step::Turn::kInTurn : Step::Turn::kAlone;
  if (calls.size() > 1)
    return CompiledNodes{std::make_unique<AtenStepByRank>(plan_, node, turn, std::move(calls))};
  return CompiledNodes{std::make_unique<AtenStep>(plan_, node, turn, std::move(calls[0]))};
}

Result<std::vector<std::unique_ptr<Step>>> CompileWithAten(const RunPlan& plan,
                                                           std::span<const NodeId> nodes) {
  AtenBackend aten(plan);
  std::vector<std::unique_ptr<Step>> steps;
  for (NodeId node : nodes) {
    HEDDLE_TRY(CompiledNodes compiled, aten.Compile(node));
    steps.push_back(std::move(compiled.step));
  }
  return steps;
}

}  // namespace heddle::run
