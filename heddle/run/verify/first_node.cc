#include "heddle/run/verify/first_node.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <ATen/record_function.h>

#include "heddle/core/base/hash.h"
#include "heddle/core/ir/text/print.h"

namespace heddle::run {
namespace {

// Hashes element type and bits but not the shape: a view of a whole tensor has the same content.
uint64_t ContentHash(const at::Tensor& tensor) {
  at::Tensor plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
  uint64_t words[] = {Hash64(plain.data_ptr(), plain.nbytes()), plain.nbytes(),
                      static_cast<uint64_t>(plain.scalar_type())};
  return Hash64(std::span<const uint64_t>(words));
}

NodeFinding MakeFinding(const Session& session, const RankProgram& program, NodeId node, size_t at,
                        std::string what) {
  // The session counts a step when it is complete.
  return {session.steps() + 1, program.ranks()[at],
          PrintNode(program.module(), program.graph(), node), std::move(what)};
}

// Calls `look` with each tensor that a node computes, until `look` returns true.
RankProgram::Observer LookAtResults(
    const RankProgram& program,
    std::function<bool(NodeId, size_t at, ValueId, const at::Tensor&)> look) {
  return [&program, look = std::move(look), done = false](NodeId node,
                                                          std::span<const Tensors> values) mutable {
    if (done) return;
    for (ValueId value : program.graph().results(node)) {
      for (size_t at = 0; at < values.size() && !done; ++at) {
        for (const at::Tensor& tensor : program.slots().TensorsOf(value, values[at])) {
          if (tensor.defined() && look(node, at, value, tensor)) done = true;
        }
      }
    }
  };
}

// Records the content of all tensors that ATen computes until Stop, on any thread.
class Witness {
 public:
  Witness() {
    active = this;
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(nullptr, See)
                                        .needsOutputs(true)
                                        .scopes({at::RecordScope::FUNCTION}));
  }
  ~Witness() { Stop(); }
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  void Stop() {
    if (active != this) return;
    at::removeCallback(handle_);
    active = nullptr;
  }

  void Add(const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.is_sparse()) return;
    at::DisableRecordFunctionGuard unseen;
    uint64_t hash = ContentHash(tensor);
    std::lock_guard lock(mutex_);
    seen_.insert(hash);
  }
  bool Has(const at::Tensor& tensor) const { return seen_.contains(ContentHash(tensor)); }

 private:
  static void See(const at::RecordFunction& function, at::ObserverContext*) {
    for (const c10::IValue& output : function.outputs()) {
      if (output.isTensor()) active->Add(output.toTensor());
      if (!output.isTensorList()) continue;
      for (const at::Tensor& tensor : output.toTensorVector()) active->Add(tensor);
    }
  }

  // Callbacks of ATen take no context, so only one witness may exist at a time.
  static inline Witness* active = nullptr;
  at::CallbackHandle handle_ = 0;
  std::mutex mutex_;
  std::unordered_set<uint64_t> seen_;
};

// Returns the graph's output for a difference.
ValueId DifferingValue(const Graph& graph, const Difference& difference) {
  auto param = static_cast<int64_t>(difference.param);
  for (const Output& output : graph.outputs()) {
    if (!difference.kind && output.role == OutputRole::kLoss) return output.value;
    if (difference.kind == StateKind::kGrad && output.role == OutputRole::kGrad &&
        output.index == param)
      return output.value;
    if (!difference.kind || output.role != OutputRole::kUpdate) continue;
    for (const Input& input : graph.inputs()) {
      if (input.value != output.target || input.index != param) continue;
      bool same = *difference.kind == StateKind::kParam
                      ? input.role == InputRole::kParam
                      : input.role == InputRole::kOpt && input.label == Name(*difference.kind);
      if (same) return output.value;
    }
  }
  return {};
}

// A single number may match an eager tensor by chance. Distrusts the match if its producer's
// operands are unknown.
void DoubtSingleNumbers(const Graph& graph, Table<NodeId, bool>& known) {
  auto is_number = [&](ValueId v) { return graph.types().bytes(graph.type(v)) <= Bytes{8}; };
  auto is_unknown = [&](ValueId v) { return v && graph[v].producer && !known[graph[v].producer]; };
  for (NodeId node : graph.nodes()) {
    if (std::ranges::all_of(graph.results(node), is_number) &&
        std::ranges::any_of(graph.operands(node), is_unknown))
      known[node] = false;
  }
}

// Searches backwards from `value` through nodes that are not `known`. Returns the earliest one
// whose operands are all known.
std::optional<NodeId> FirstUnknown(const Graph& graph, ValueId value,
                                   const Table<NodeId, bool>& known) {
  std::optional<NodeId> first;
  Table<NodeId, bool> reached(graph.node_count(), false);
  std::vector<ValueId> open = {value};
  while (!open.empty()) {
    NodeId node = open.back() ? graph[open.back()].producer : NodeId();
    open.pop_back();
    if (!node || known[node] || reached[node]) continue;
    reached[node] = true;
    size_t before = open.size();
    for (ValueId operand : graph.operands(node)) {
      if (operand && graph[operand].producer && !known[graph[operand].producer])
        open.push_back(operand);
    }
    if (open.size() == before && (!first || node < *first)) first = node;
  }
  return first;
}

}  // namespace

Result<std::optional<NodeFinding>> FirstNotFinite(Session& session,
                                                  const std::function<double(int64_t)>& lr,
                                                  int64_t last) {
  std::optional<NodeFinding> nan;
  std::optional<NodeFinding> infinite;
  auto watch = [&](const RankProgram& program) {
    return LookAtResults(program, [&](NodeId node, size_t at, ValueId, const at::Tensor& tensor) {
      if (nan || !tensor.is_floating_point()) return nan.has_value();
      if (!infinite && at::isinf(tensor).any().item<bool>())
        infinite = MakeFinding(session, program, node, at, "the first infinity");
      if (at::isnan(tensor).any().item<bool>())
        nan = MakeFinding(session, program, node, at, "the first NaN");
      return nan.has_value();
    });
  };
  while (session.steps() < last && !nan)
    HEDDLE_RETURN_IF_ERROR(session.Step(lr(session.steps() + 1), watch));
  return nan ? nan : infinite;
}

Result<std::optional<NodeFinding>> FirstAgainstGraph(Session& session, Session& other, double lr) {
  // By name, one for each rank.
  std::unordered_map<std::string, std::vector<uint64_t>> hashes;
  const RankProgram& theirs = other.program();
  auto remember = [&](NodeId, size_t at, ValueId value, const at::Tensor& tensor) {
    std::vector<uint64_t>& by_rank = hashes[std::string(theirs.graph().name(value))];
    by_rank.resize(theirs.ranks().size());
    by_rank[at] += ContentHash(tensor);
    return false;
  };
  HEDDLE_RETURN_IF_ERROR(
      other.Step(lr, [&](const RankProgram& program) { return LookAtResults(program, remember); }));
  const RankProgram& ours = session.program();
  std::optional<NodeFinding> finding;
  auto look = [&](NodeId node, size_t at, ValueId value, const at::Tensor& tensor) {
    // An async value has several tensors; its wait has one.
    if (ours.graph().types().is_async(ours.graph().type(value))) return false;
    auto found = hashes.find(std::string(ours.graph().name(value)));
    if (found == hashes.end()) return false;
    if (found->second[*other.Find(ours.ranks()[at])] == ContentHash(tensor)) return false;
    finding = MakeFinding(session, ours, node, at, "the first value that differs");
    return true;
  };
  HEDDLE_RETURN_IF_ERROR(
      session.Step(lr, [&](const RankProgram& program) { return LookAtResults(program, look); }));
  return finding;
}

Result<std::optional<NodeFinding>> FirstAgainstEager(Session& session, TrainingRun& other,
                                                     double lr, size_t params,
                                                     const Difference& difference) {
  const RankProgram& program = session.program();
  Table<NodeId, bool> known(program.graph().node_count(), true);
  {
    Witness witness;
    HEDDLE_RETURN_IF_ERROR(other.Step(lr));
    for (size_t at = 0; at < other.ranks().size(); ++at) {
      witness.Add(other.loss(at));
      witness.Add(other.grad_norm(at));
      for (StateKind kind : kStateKinds) {
        for (size_t param = 0; param < params; ++param) witness.Add(other.state(kind, at, param));
      }
    }
    // Stops before the graph computes: its tensors must not count.
    witness.Stop();
    auto look = [&](NodeId node, size_t, ValueId, const at::Tensor& tensor) {
      if (!witness.Has(tensor)) known[node] = false;
      return false;
    };
    HEDDLE_RETURN_IF_ERROR(
        session.Step(lr, [&](const RankProgram& w) { return LookAtResults(w, look); }));
  }
  DoubtSingleNumbers(program.graph(), known);
  std::optional<NodeId> first =
      FirstUnknown(program.graph(), DifferingValue(program.graph(), difference), known);
  std::optional<size_t> at = session.Find(difference.rank);
  if (!first || !at) return std::optional<NodeFinding>();
  NodeFinding finding =
      MakeFinding(session, program, *first, *at, "the first value that eager never had");
  finding.step = session.steps();
  return std::optional(std::move(finding));
}

}  // namespace heddle::run
