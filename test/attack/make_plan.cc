#include "test/attack/make_plan.h"

#include <set>

#include "heddle/core/base/text.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

class PlanMaker {
 public:
  explicit PlanMaker(AttackDice& dice) : dice_(dice) {}

  std::string Run(const std::string& text) {
    Result<Module> module = ParseModule(text, "graph", Ops());
    MakeMesh(module.ok() && !module->mesh.empty() ? &module->mesh : nullptr);
    if (!module.ok()) return std::move(plan_);
    for (const Graph& graph : module->graphs) PlanGraph(graph);
    for (const std::string& statement : statements_) plan_ += statement + "\n";
    return std::move(plan_);
  }

 private:
  void MakeMesh(const Mesh* given) {
    static constexpr const char* kNames[] = {"dp", "tp", "a"};
    size_t count = 1 + dice_.Below(3);
    std::string mesh;
    for (size_t i = 0; i < count; ++i) {
      axes_.emplace_back(kNames[i]);
      mesh += fmt::format("{}{}={}", i == 0 ? "" : ", ", kNames[i], dice_.OneIn(6) ? 3 : 2);
    }
    if (given != nullptr) {
      mesh = Format(*given);
      axes_.clear();
      for (const MeshAxis& axis : given->axes()) axes_.push_back(axis.name);
    }
    plan_ = fmt::format("heddle plan 1\nmesh [{}]\n", mesh);
  }

  void PlanGraph(const Graph& graph) {
    bool has_grads = false;
    for (const Input& input : graph.inputs()) {
      size_t rank = graph.types().rank(graph.type(input.value));
      std::string name = input.label.empty() || dice_.OneIn(8) ? "\"**\"" : Quoted(input.label);
      if (input.role == InputRole::kParam) {
        statements_.insert(fmt::format("param {} store {} compute {}{}", name, Placement(rank),
                                       Placement(rank), dice_.OneIn(6) ? " unit \"u\"" : ""));
        has_grads = true;
      } else if (input.role != InputRole::kPlain && !dice_.OneIn(4)) {
        statements_.insert(fmt::format("input {} {}", name, Placement(rank)));
      }
    }
    for (NodeId id : graph.nodes()) {
      if (graph.scope(id).empty() || dice_.OneIn(2)) continue;
      size_t results = graph.results(id).size();
      size_t rank = results == 0 ? 0 : graph.types().rank(graph.type(*graph.results(id).begin()));
      statements_.insert(ModuleStatement(graph.scope(id), rank));
    }
    static constexpr const char* kGrads[] = {"grads average", "grads divide 8", "grads divide 3.5",
                                             "grads sum", "tensor-grads wide"};
    if (has_grads && dice_.OneIn(2)) statements_.insert(dice_.Pick(kGrads));
  }

  std::string ModuleStatement(std::string_view scope, size_t rank) {
    std::string out = fmt::format("module {}", Quoted(scope));
    if (dice_.OneIn(3)) out += " in " + Placement(rank);
    if (dice_.OneIn(3)) out += " out " + Placement(rank);
    if (dice_.OneIn(3)) out += fmt::format(" local [{}]", dice_.Pick(axes_));
    if (dice_.OneIn(4)) out += dice_.OneIn(2) ? " why loss" : " why tensor";
    if (dice_.OneIn(4)) out += " write-out";
    return out;
  }

  // Each axis splits one dimension, or none.
  std::string Placement(size_t rank) {
    std::vector<std::string> dims(rank);
    for (const std::string& axis : axes_) {
      if (rank == 0 || dice_.OneIn(2)) continue;
      std::string& dim = dims[dice_.Below(rank)];
      dim += (dim.empty() ? "" : ",") + axis;
    }
    std::string out;
    for (const std::string& dim : dims) {
      bool several = dim.find(',') != std::string::npos;
      out += out.empty() ? "[" : ",";
      out += dim.empty() ? "-" : several ? "{" + dim + "}" : dim;
    }
    return out.empty() ? "[]" : out + "]";
  }

  AttackDice& dice_;
  std::vector<std::string> axes_;
  std::string plan_;
  // A set, because a plan must not repeat a statement.
  std::set<std::string> statements_;
};

}  // namespace

std::string MakePlan(const std::string& graph, AttackDice& dice) {
  return PlanMaker(dice).Run(graph);
}

}  // namespace heddle
