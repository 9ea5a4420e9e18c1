#include "heddle/compile/manager/reduce.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/core/analysis/uses.h"
#include "heddle/core/base/file.h"
#include "heddle/core/ir/check/check_module.h"

namespace heddle::compile {
namespace {

// The output of a child process until it ends. Nullopt if it exceeded the time limit and was
// killed.
std::optional<std::string> ReadUntil(int fd, pid_t child, Nanos limit) {
  std::string text;
  char buffer[4096];
  pollfd poll{fd, POLLIN, 0};
  auto milliseconds = static_cast<int>(limit.value / 1'000'000);
  while (::poll(&poll, 1, milliseconds) > 0) {
    ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n <= 0) return text;
    text.append(buffer, static_cast<size_t>(n));
  }
  ::kill(child, SIGKILL);
  return std::nullopt;
}

class Reducer {
 public:
  Reducer(const Module& module, const Trial& trial, const ReduceModuleOptions& options)
      : best_(module), trial_(trial), options_(options) {}

  Result<Module> Run() {
    std::string text;
    if (!Fails(best_, &text)) {
      std::string wanted = options_.crash ? "crash" : "fail";
      if (!options_.error.empty()) wanted += fmt::format(" with `{}`", options_.error);
      return Error(Diag::kReduce, "the pipeline does not {} on the whole graph; it prints {}",
                   wanted,
                   text.empty() ? "nothing" : fmt::format("`{}`", text.substr(0, text.find('\n'))));
    }
    // Remove outputs first, because much of the graph is dead without them.
    bool smaller = true;
    while (smaller) {
      smaller = ShrinkGraphs();
      for (size_t g = 0; g < best_.graphs.size(); ++g) {
        auto outputs = [g](const Module& m) { return m.graphs[g].outputs().size(); };
        auto nodes = [g](const Module& m) { return m.graphs[g].node_count(); };
        auto inputs = [g](const Module& m) { return m.graphs[g].inputs().size(); };
        smaller |= ShrinkList(outputs, [g](Module& m, size_t from, size_t to) {
          DropOutputs(m.graphs[g], from, to);
        });
        smaller |= ShrinkList(
            nodes, [g](Module& m, size_t from, size_t to) { CutNodes(m.graphs[g], from, to); });
        smaller |= ShrinkList(inputs, [g](Module& m, size_t from, size_t to) {
          DropUnusedInputs(m.graphs[g], from, to);
        });
      }
    }
    return std::move(best_);
  }

 private:
  static size_t Size(const Module& module) {
    size_t size = 0;
    // A node counts more than the input and output that cutting it may add.
    for (const Graph& graph : module.graphs)
      size += 8 * graph.node_count() + graph.inputs().size() + graph.outputs().size() + 1;
    return size;
  }

  // Runs the trial in a child process, because the failure may be a crash.
  bool Fails(const Module& module, std::string* said = nullptr) {
    ++trials_;
    int ends[2];
    if (::pipe(ends) != 0) return false;
    pid_t child = ::fork();
    if (child == 0) {
      ::close(ends[0]);
      ::dup2(ends[1], STDERR_FILENO);
      rlimit no_core{0, 0};
      ::setrlimit(RLIMIT_CORE, &no_core);
      std::string text = trial_(module);
      if (::write(ends[1], text.data(), text.size()) < 0) std::_Exit(1);
      std::_Exit(0);
    }
    ::close(ends[1]);
    std::optional<std::string> text;
    if (child > 0) text = ReadUntil(ends[0], child, options_.trial_limit);
    ::close(ends[0]);
    int status = 0;
    if (child > 0) ::waitpid(child, &status, 0);
    if (!text) return false;
    if (said != nullptr) *said = *text;
    bool died = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (options_.crash) return died && text->find(options_.error) != std::string::npos;
    return text->find(options_.error) != std::string::npos;
  }

  bool Accept(Module candidate) {
    if (Size(candidate) >= Size(best_) || !Verify(candidate).ok() || !Fails(candidate))
      return false;
    best_ = std::move(candidate);
    if (options_.progress) {
      size_t nodes = 0;
      for (const Graph& graph : best_.graphs) nodes += graph.node_count();
      options_.progress(nodes, trials_);
    }
    return true;
  }

  bool ShrinkGraphs() {
    bool any = false;
    for (size_t g = best_.graphs.size(); best_.graphs.size() > 1 && g-- > 0;) {
      Module candidate = best_;
      candidate.graphs.erase(candidate.graphs.begin() + static_cast<ptrdiff_t>(g));
      any |= Accept(std::move(candidate));
    }
    return any;
  }

  // Tries to remove runs of items, from half of them down to single ones. Starts at the end,
  // because later items depend on earlier ones.
  template <typename Count, typename Remove>
  bool ShrinkList(Count count, Remove remove) {
    bool any = false;
    for (size_t run = std::max<size_t>(count(best_) / 2, 1); run > 0; run /= 2) {
      for (size_t to = count(best_); to > 0;) {
        size_t from = to > run ? to - run : 0;
        Module candidate = best_;
        remove(candidate, from, to);
        any |= Accept(std::move(candidate));
        to = std::min(from, count(best_));
      }
    }
    return any;
  }

  static void DropOutputs(Graph& graph, size_t from, size_t to) {
    Rewriter rewriter(graph);
    for (size_t i = from; i < to && i < graph.outputs().size(); ++i) rewriter.EraseOutput(i);
    rewriter.Commit();
    RemoveDead(graph);
  }

  // Removes nodes; a collective and its wait go together. Results that remaining nodes need become
  // inputs, and operands without other readers become outputs, so that the rest stays alive.
  static void CutNodes(Graph& graph, size_t from, size_t to) {
    std::vector<bool> is_cut(graph.node_count());
    for (size_t i = from; i < to; ++i) is_cut[i] = true;
    for (NodeId id : graph.nodes()) {
      for (ValueId v : graph.operands(id)) {
        NodeId start = v && graph.types().is_async(graph.type(v)) ? graph[v].producer : NodeId();
        if (start && (is_cut[id.index()] || is_cut[start.index()]))
          is_cut[id.index()] = is_cut[start.index()] = true;
      }
    }
    Uses uses(graph);
    Rewriter rewriter(graph);
    bool in_roles = std::ranges::any_of(graph.inputs(),
                                        [](const Input& i) { return i.role != InputRole::kPlain; });
    bool out_roles = std::ranges::any_of(
        graph.outputs(), [](const Output& o) { return o.role != OutputRole::kPlain; });
    auto cut = [&](NodeId id) { return id && is_cut[id.index()]; };
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      if (cut(graph[graph.outputs()[i].value].producer)) rewriter.EraseOutput(i);
    }
    std::vector<ValueId> orphans;
    size_t nodes = graph.node_count();
    for (size_t i = 0; i < nodes; ++i) {
      NodeId id(i);
      if (!cut(id)) continue;
      for (ValueId v : graph.results(id)) {
        if (std::ranges::all_of(uses.of(v), [&](const Use& u) { return cut(u.node); })) continue;
        Input input;
        if (in_roles) input.role = InputRole::kBuffer;
        ValueId fresh = rewriter.AddInput(std::move(input), graph.type(v),
                                          std::string(graph.name(v)), graph[v].placement);
        rewriter.ReplaceValue(v, fresh);
      }
      for (ValueId v : graph.operands(id)) {
        bool orphan = v && graph[v].producer && !cut(graph[v].producer) && !uses.is_output(v) &&
                      std::ranges::all_of(uses.of(v), [&](const Use& u) { return cut(u.node); });
        if (orphan && !graph.types().is_async(graph.type(v))) orphans.push_back(v);
      }
      rewriter.Erase(id);
    }
    std::ranges::sort(orphans);
    orphans.erase(std::unique(orphans.begin(), orphans.end()), orphans.end());
    for (ValueId v : orphans) {
      Output output;
      output.value = v;
      if (out_roles) output.role = OutputRole::kMetric;
      graph.AddOutput(std::move(output));
    }
    rewriter.Commit();
  }

  static void DropUnusedInputs(Graph& graph, size_t from, size_t to) {
    Uses uses(graph);
    Rewriter rewriter(graph);
    for (size_t i = from; i < to && i < graph.inputs().size(); ++i) {
      ValueId value = graph.inputs()[i].value;
      bool updated =
          std::ranges::any_of(graph.outputs(), [&](const Output& o) { return o.target == value; });
      if (uses.unused(value) && !updated) rewriter.EraseInput(i);
    }
    rewriter.Commit();
  }

  // Like the pass dce, which belongs to a higher layer.
  static void RemoveDead(Graph& graph) {
    Table<ValueId, bool> needed(graph.value_count());
    for (const Output& output : graph.outputs()) needed[output.value] = true;
    Rewriter rewriter(graph);
    for (size_t i = graph.node_count(); i-- > 0;) {
      IdRange<ValueId> results = graph.results(NodeId(i));
      bool alive = std::ranges::any_of(results, [&](ValueId v) { return needed[v]; });
      if (!alive) rewriter.Erase(NodeId(i));
      for (ValueId v : graph.operands(NodeId(i))) {
        if (alive && v) needed[v] = true;
      }
    }
    rewriter.Commit();
  }

  Module best_;
  const Trial& trial_;
  const ReduceModuleOptions& options_;
  size_t trials_ = 0;
};

}  // namespace

Result<Module> ReduceModule(const Module& module, const Trial& trial,
                            const ReduceModuleOptions& options) {
  return Reducer(module, trial, options).Run();
}

Result<Module> ReduceModule(const Module& module, const Pipeline& pipeline,
                            const ReduceModuleOptions& options) {
  TempDir scratch;
  if (scratch.path().empty()) return Error(Diag::kFileWrite, "cannot make a temporary directory");
  ManagerOptions manager;
  manager.reproducer_dir = scratch.path();
  Trial trial = [&](const Module& smaller) {
    Module copy = smaller;
    Result<RunReport> report = RunPipeline(copy, pipeline, manager);
    return report.ok() ? "" : Format(report.diagnostics());
  };
  return ReduceModule(module, trial, options);
}

}  // namespace heddle::compile
