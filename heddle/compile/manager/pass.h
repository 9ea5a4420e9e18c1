// Passes: their definition, and what they may do.
//
// A pass is a function `Result<Changed> Name(Graph&, const NameOptions&, PassContext&)`. It may
// take a Module instead of a graph, and may have no options. It transforms, counts and adds
// remarks. It never logs, verifies, times, dumps or reads the environment; the manager does that
// for every pass. An entry looks like
//
//   constexpr OptionDef kOptions[] = {
//       Option<&BucketOptions::max_bytes>("max_bytes", "close a bucket at this size")};
//   HEDDLE_DEFINE_PASS(bucket) {
//       .name = "bucket", .run = Run<Bucket>, .make_options = Make<BucketOptions>, ...};
//
// and has one line in passes/pass_list.def.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <typeindex>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/base/units.h"
#include "heddle/core/ir/edit/rewriter.h"
#include "heddle/core/ir/graph.h"

#define HEDDLE_DEFINE_PASS(ident)        \
  extern const PassDef kPassDef_##ident; \
  constinit const PassDef kPassDef_##ident =

namespace heddle::price {
class CostModel;
}  // namespace heddle::price

namespace heddle::compile {

// The effect of a pass on the bits of outputs.
enum class Numerics : uint8_t {
  // Nothing.
  kExact,
  // A value may be reduced in another launch or at another offset. Bits stay equal if the reducer
  // adds in rank order.
  kRegrouping,
  // Results may round differently. The manager runs such a pass only if it was requested by name
  // (pipeline.h).
  kRounding,
};
std::string_view Name(Numerics numerics);

enum class RemarkKind : uint8_t {
#define HEDDLE_REMARK(ident, name, meaning) ident,
#include "heddle/compile/manager/remarks.def"
#undef HEDDLE_REMARK
};
// The tag printed in brackets after a remark: `view-not-local`.
std::string_view Name(RemarkKind kind);
struct RemarkKindDoc {
  std::string_view name;
  std::string_view meaning;
};
std::span<const RemarkKindDoc> AllRemarkKinds();

// An opportunity that a pass declined, or another fact for the user. Remarks are results, so
// goldens contain them.
struct Remark {
  std::string graph;
  // The name of the value it concerns, or empty.
  std::string value;
  std::string text;
  RemarkKind kind;
};
std::string Format(const Remark& remark);

class PassContext {
 public:
  explicit PassContext(const Mesh& mesh, const price::CostModel* costs = nullptr)
      : mesh_(mesh), costs_(costs) {}

  const Mesh& mesh() const { return mesh_; }
  // The prices of nodes on the cluster that runs the step, for a pass with `PassDef::prices`.
  const price::CostModel& costs() const {
    HEDDLE_CHECK(costs_ != nullptr, "a pass without `prices` asks for costs");
    return *costs_;
  }

  // Adds to one of the statistics that the pass declares.
  void Count(std::string_view stat, int64_t n = 1);
  template <typename... Args>
  void AddRemark(const Graph& graph, ValueId value, RemarkKind kind,
                 fmt::format_string<Args...> format, Args&&... args) {
    remarks_.push_back({graph.name(), value ? std::string(graph.name(value)) : "",
                        fmt::format(format, std::forward<Args>(args)...), kind});
  }

  const std::vector<std::pair<std::string, int64_t>>& counts() const { return counts_; }
  std::vector<Remark>& remarks() { return remarks_; }

 private:
  const Mesh& mesh_;
  const price::CostModel* costs_;
  std::vector<std::pair<std::string, int64_t>> counts_;
  std::vector<Remark> remarks_;
};

// One option: reads its field from text, and prints it.
struct OptionDef {
  std::string_view name;
  std::string_view help;
  Status (*set)(void* options, std::string_view text);
  std::string (*get)(const void* options);
};

Status ParseOption(std::string_view text, bool& out);
Status ParseOption(std::string_view text, int64_t& out);
Status ParseOption(std::string_view text, double& out);
Status ParseOption(std::string_view text, Bytes& out);
Status ParseOption(std::string_view text, std::string& out);
std::string FormatOption(bool value);
std::string FormatOption(int64_t value);
std::string FormatOption(double value);
std::string FormatOption(Bytes value);
std::string FormatOption(const std::string& value);

template <auto Member>
struct MemberTraits;
template <typename Class, typename Field, Field Class::*Member>
struct MemberTraits<Member> {
  using Options = Class;
};

template <auto Member>
constexpr OptionDef Option(std::string_view name, std::string_view help) {
  using Options = typename MemberTraits<Member>::Options;
  return {name, help,
          [](void* options, std::string_view text) {
            return ParseOption(text, static_cast<Options*>(options)->*Member);
          },
          [](const void* options) {
            return FormatOption(static_cast<const Options*>(options)->*Member);
          }};
}

struct PassDef {
  std::string_view name;
  std::string_view summary;
  Result<Changed> (*run)(Module&, const void* options, PassContext&);
  std::shared_ptr<void> (*make_options)() = nullptr;
  std::span<const OptionDef> options = {};
  // Whether the pass accepts both views; otherwise `view` is required.
  bool any_view = true;
  View needs = View::kLocal;
  Numerics numerics = Numerics::kExact;
  // For a pass that replaces inputs or outputs. For other passes, the manager checks that roles are
  // preserved.
  bool changes_signature = false;
  // For a pass that assigns parameters to units. Other passes keep units.
  bool sets_units = false;
  // For a scheduling pass. For other passes, the manager checks that each communicator launches in
  // the same order.
  bool reorders_launches = false;
  // For a pass that uses the times of a cluster (PassContext::costs).
  bool prices = false;
  std::span<const std::string_view> stats = {};
  // An invariant that the pass establishes. The manager checks it after this pass and after every
  // later pass of the pipeline.
  Status (*ensures)(const Module&) = nullptr;
};

template <typename Options>
std::shared_ptr<void> Make() {
  return std::make_shared<Options>();
}

// Adapts a pass function to PassDef::run. A graph pass runs on each graph of the module.
template <typename Function>
struct PassRunner;
template <>
struct PassRunner<Result<Changed> (*)(Module&, PassContext&)> {
  template <auto F>
  static Result<Changed> Run(Module& module, const void*, PassContext& context) {
    return F(module, context);
  }
};
template <typename Options>
struct PassRunner<Result<Changed> (*)(Module&, const Options&, PassContext&)> {
  template <auto F>
  static Result<Changed> Run(Module& module, const void* options, PassContext& context) {
    return F(module, *static_cast<const Options*>(options), context);
  }
};
template <>
struct PassRunner<Result<Changed> (*)(Graph&, PassContext&)> {
  template <auto F>
  static Result<Changed> Run(Module& module, const void*, PassContext& context) {
    Changed changed = Changed::kNo;
    for (Graph& graph : module.graphs) {
      HEDDLE_TRY(Changed one, F(graph, context));
      changed = changed | one;
    }
    return changed;
  }
};
template <typename Options>
struct PassRunner<Result<Changed> (*)(Graph&, const Options&, PassContext&)> {
  template <auto F>
  static Result<Changed> Run(Module& module, const void* options, PassContext& context) {
    Changed changed = Changed::kNo;
    for (Graph& graph : module.graphs) {
      HEDDLE_TRY(Changed one, F(graph, *static_cast<const Options*>(options), context));
      changed = changed | one;
    }
    return changed;
  }
};
template <auto F>
constexpr auto Run = &PassRunner<decltype(F)>::template Run<F>;

// The passes and named pipelines available to a pipeline's text. The table itself is in passes/, a
// higher layer.
struct PassTable {
  std::span<const PassDef* const> passes;
  struct Named {
    std::string_view name;
    std::string_view text;
  };
  std::span<const Named> pipelines;

  const PassDef* Find(std::string_view name) const;
  const Named* FindPipeline(std::string_view name) const;
};

}  // namespace heddle::compile
