#include "heddle/run/verify/first_node.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <ATen/record_function.h>

#include "heddle/core/analysis/launch.h"
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

NodeFinding MakeFinding(int64_t step, const RankProgram& program, NodeId node, size_t at,
                        std::string what) {
  return {step, program.ranks()[at], PrintNode(program.module(), program.graph(), node),
          std::move(what)};
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

// Whether the node hands on a value that another coordinate of a pipeline has computed.
bool IsReceived(const Graph& graph, NodeId node) {
  NodeId launch = LaunchOf(graph, node);
  return launch && graph[launch].op == op::comm_recv;
}

// The findings of one step: one per program, because the programs of a pipeline run on several
// threads.
class Findings {
 public:
  // Whether a tensor is wrong, and how. Empty: it is right.
  using Look = std::function<std::string(size_t at, ValueId, const at::Tensor&)>;

  explicit Findings(int64_t step) : step_(step) {}

  // Records the first wrong tensor of a program.
  RankProgram::Observer Watch(const RankProgram& program, Look look) {
    std::lock_guard lock(mutex_);
    Found& found = by_program_[&program];
    return LookAtResults(program,
                         [this, &program, &found, look = std::move(look)](
                             NodeId node, size_t at, ValueId value, const at::Tensor& tensor) {
                           std::string what = look(at, value, tensor);
                           if (what.empty()) return false;
                           found.wrong = true;
                           if (!IsReceived(program.graph(), node))
                             found.origin = MakeFinding(step_, program, node, at, std::move(what));
                           return true;
                         });
  }
  bool any() const {
    return std::ranges::any_of(by_program_, [](const auto& entry) { return entry.second.wrong; });
  }
  // The finding of the first program that computes a wrong value from right ones.
  std::optional<NodeFinding> First(const GraphRun& run) const {
    for (const Session* session : run.sessions()) {
      auto found = by_program_.find(&session->program());
      if (found != by_program_.end() && found->second.origin) return found->second.origin;
    }
    return std::nullopt;
  }

 private:
  struct Found {
    // Not set if another coordinate sent the first wrong value.
    bool wrong = false;
    std::optional<NodeFinding> origin;
  };
  int64_t step_;
  std::mutex mutex_;
  std::map<const RankProgram*, Found> by_program_;
};

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

Result<std::optional<NodeFinding>> FirstNotFinite(GraphRun& run,
                                                  const std::function<double(int64_t)>& lr,
                                                  int64_t last) {
  std::optional<NodeFinding> nan;
  std::optional<NodeFinding> infinite;
  bool any = false;
  while (run.steps() < last) {
    if (any) {
      // Other processes may not have seen a NaN yet, and all must run the same steps.
      HEDDLE_RETURN_IF_ERROR(run.Step(lr(run.steps() + 1)));
      continue;
    }
    int64_t step = run.steps() + 1;
    Findings nans(step);
    Findings infinities(step);
    auto is_nan = [](size_t, ValueId, const at::Tensor& tensor) -> std::string {
      bool wrong = tensor.is_floating_point() && at::isnan(tensor).any().item<bool>();
      return wrong ? "the first NaN" : "";
    };
    auto is_infinite = [](size_t, ValueId, const at::Tensor& tensor) -> std::string {
      bool wrong = tensor.is_floating_point() && at::isinf(tensor).any().item<bool>();
      return wrong ? "the first infinity" : "";
    };
    HEDDLE_RETURN_IF_ERROR(run.Step(lr(step), [&](const RankProgram& program) {
      return [nan = nans.Watch(program, is_nan), inf = infinities.Watch(program, is_infinite)](
                 NodeId node, std::span<const Tensors> values) {
        inf(node, values);
        nan(node, values);
      };
    }));
    if (!infinite) infinite = infinities.First(run);
    any = nans.any();
    nan = nans.First(run);
  }
  return any ? nan : infinite;
}

Result<std::optional<NodeFinding>> FirstAgainstGraph(GraphRun& run, GraphRun& other, double lr) {
  // By name and rank.
  std::map<std::pair<std::string, int64_t>, uint64_t> hashes;
  std::mutex adding;
  HEDDLE_RETURN_IF_ERROR(other.Step(lr, [&](const RankProgram& program) {
    return LookAtResults(program, [&](NodeId, size_t at, ValueId value, const at::Tensor& tensor) {
      uint64_t hash = ContentHash(tensor);
      std::lock_guard lock(adding);
      hashes[{std::string(program.graph().name(value)), program.ranks()[at]}] += hash;
      return false;
    });
  }));
  Findings findings(run.steps() + 1);
  HEDDLE_RETURN_IF_ERROR(run.Step(lr, [&](const RankProgram& program) {
    return findings.Watch(
        program, [&](size_t at, ValueId value, const at::Tensor& tensor) -> std::string {
          const Graph& graph = program.graph();
          // An async value has several tensors; its wait has one.
          if (graph.types().is_async(graph.type(value))) return "";
          auto found = hashes.find({std::string(graph.name(value)), program.ranks()[at]});
          if (found == hashes.end() || found->second == ContentHash(tensor)) return "";
          return "the first value that differs";
        });
  }));
  return findings.First(run);
}

Result<std::optional<NodeFinding>> FirstAgainstEager(GraphRun& run, TrainingRun& other, double lr,
                                                     size_t params, const Difference& difference) {
  // The session whose rank differs, if it is in this process.
  const Session* session = nullptr;
  for (const Session* one : run.sessions()) {
    if (one->Find(difference.rank)) session = one;
  }
  Table<NodeId, bool> known;
  if (session != nullptr)
    known = Table<NodeId, bool>(session->program().graph().node_count(), true);
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
    HEDDLE_RETURN_IF_ERROR(run.Step(lr, [&](const RankProgram& program) {
      if (session == nullptr || &program != &session->program()) return RankProgram::Observer();
      return LookAtResults(program, [&](NodeId node, size_t, ValueId, const at::Tensor& tensor) {
        if (!witness.Has(tensor)) known[node] = false;
        return false;
      });
    }));
  }
  if (session == nullptr) return std::optional<NodeFinding>();
  const RankProgram& program = session->program();
  DoubtSingleNumbers(program.graph(), known);
  std::optional<NodeId> first =
      FirstUnknown(program.graph(), DifferingValue(program.graph(), difference), known);
  if (!first) return std::optional<NodeFinding>();
  return std::optional(MakeFinding(run.steps(), program, *first, *session->Find(difference.rank),
                                   "the first value that eager never had"));
}

}  // namespace heddle::run
