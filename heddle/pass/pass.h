// Passes: what one is, and what it may do.
//
// A pass is a function `Result<Changed> Name(Graph&, const NameOptions&, PassContext&)`, or over a Module, or without
// options. It transforms, counts and remarks; it never logs, verifies, times, dumps or reads the environment: the
// manager does that for every pass. An entry looks like
//
//   constexpr OptionDef kOptions[] = {Option<&BucketOptions::max_bytes>("max_bytes", "close a bucket at this size")};
//   HEDDLE_DEFINE_PASS(bucket) {.name = "bucket", .run = Run<Bucket>, .make_options = Make<BucketOptions>, ...};
//
// and one line in passes/pass_list.def.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <typeindex>
#include <vector>

#include "heddle/base/result.h"
#include "heddle/base/units.h"
#include "heddle/ir/graph.h"
#include "heddle/ir/rewriter.h"

#define HEDDLE_DEFINE_PASS(ident)        \
  extern const PassDef kPassDef_##ident; \
  constinit const PassDef kPassDef_##ident =

namespace heddle {

// What a pass may do to the bits of outputs.
enum class Numerics : uint8_t {
  // Nothing.
  kExact,
  // A value may be reduced in another launch, at another offset: equal bits when the reducer adds in rank order.
  kRegrouping,
  // May round differently. Runs only when it is asked for by name.
  kRounding,
};
std::string_view Name(Numerics numerics);

// A declined or noteworthy opportunity. Remarks are results: goldens hold them.
struct Remark {
  std::string graph;
  // The value it is about, or empty.
  std::string value;
  std::string text;
  // A short name for its kind, shown in brackets.
  std::string kind;
};
std::string Format(const Remark& remark);

class PassContext {
 public:
  explicit PassContext(const Mesh& mesh) : mesh_(mesh) {}

  const Mesh& mesh() const { return mesh_; }

  // Adds to one of the pass's declared statistics.
  void Count(std::string_view stat, int64_t n = 1);
  template <typename... Args>
  void AddRemark(const Graph& graph, ValueId value, std::string_view kind,
                 fmt::format_string<Args...> format, Args&&... args) {
    remarks_.push_back({graph.name(), value ? std::string(graph.name(value)) : "",
                        fmt::format(format, std::forward<Args>(args)...), std::string(kind)});
  }

  const std::vector<std::pair<std::string, int64_t>>& counts() const { return counts_; }
  std::vector<Remark>& remarks() { return remarks_; }

 private:
  const Mesh& mesh_;
  std::vector<std::pair<std::string, int64_t>> counts_;
  std::vector<Remark> remarks_;
};

// One option: how to read it from text into a field, and how to show it.
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
  // The view that the module must have; both if `any_view`.
  bool any_view = true;
  View needs = View::kLocal;
  Numerics numerics = Numerics::kExact;
  // A pass that turns some inputs or outputs into others says so; for all others the manager checks that roles survive.
  bool changes_signature = false;
  // A pass that gives parameters their units; all others keep them.
  bool sets_units = false;
  std::span<const std::string_view> stats = {};
};

template <typename Options>
std::shared_ptr<void> Make() {
  return std::make_shared<Options>();
}

// Adapts a pass function to PassDef::run. A pass over graphs runs on each graph of the module.
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

// The passes that a pipeline may name, and pipelines by name. Made above, in passes/.
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

}  // namespace heddle
