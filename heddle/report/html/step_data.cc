#include "heddle/report/html/step_data.h"

#include <unordered_map>

#include <nlohmann/json.hpp>

#include "heddle/core/base/text.h"
#include "heddle/core/ir/program.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

// The use of a storage. The page stacks memory in this order.
enum class Held : uint8_t {
  kParameters,
  kOptimizer,
  kInputs,
  kGathered,
  kKept,
  kGradients,
  kOther,
};
constexpr std::string_view kHeldNames[] = {
    "parameters",        "optimizer state", "other inputs", "gathered parameters",
    "kept for backward", "gradients",       "temporary"};

// Interned texts of a step.
class Strings {
 public:
  size_t Number(std::string_view text) {
    auto [at, is_new] = number_.try_emplace(std::string(text), number_.size());
    if (is_new) list_ += (list_.empty() ? "" : ",") + PageQuoted(text);
    return at->second;
  }
  std::string Finish() const { return "[" + list_ + "]"; }

 private:
  std::unordered_map<std::string, size_t> number_;
  std::string list_;
};

// Columns of numbers, by name.
class Columns {
 public:
  explicit Columns(std::initializer_list<const char*> names)
      : names_(names), texts_(names_.size()) {}

  void Add(std::initializer_list<int64_t> row) {
    size_t column = 0;
    for (int64_t number : row) {
      std::string& text = texts_[column++];
      if (!text.empty()) text += ',';
      AppendInt(text, number);
    }
  }
  std::string Finish() const {
    std::string out;
    for (size_t i = 0; i < names_.size(); ++i)
      out += fmt::format("{}\"{}\":[{}]", i == 0 ? "{" : ",", names_[i], texts_[i]);
    return out + "}";
  }

 private:
  std::vector<const char*> names_;
  std::vector<std::string> texts_;
};

class StepWriter {
 public:
  explicit StepWriter(const SimulatedStep& step)
      : step_(step),
        module_(*step.module),
        graph_(*step.graph),
        s_(*step.simulation),
        position_(graph_.node_count()) {
    for (size_t i = 0; i < s_.timeline.order.size(); ++i)
      position_[s_.timeline.order[i].index()] = static_cast<int64_t>(i);
  }

  std::string Write(std::span<const compile::PassRecord> passes) {
    std::string nodes = Nodes();
    std::string collectives = Collectives();
    std::string storages = Storages();
    std::string critical = CriticalNodes();
    std::string log = Passes(passes);
    return fmt::format(
        "{{{},\"nodes\":{},\"collectives\":{},\"storages\":{},\"critical\":[{}],\"passes\":{},"
        "\"strings\":{}}}",
        Figures(), nodes, collectives, storages, critical, log, strings_.Finish());
  }

 private:
  std::string Figures() const {
    const price::Timeline& t = s_.timeline;
    std::string streams = "[\"compute\"";
    std::string busy = fmt::format("[{}", t.compute.busy.value);
    std::string exposed = "[0";
    for (size_t i = 0; i < t.streams.size(); ++i) {
      streams += "," + PageQuoted(s_.graph.streams()[i]);
      busy += fmt::format(",{}", t.streams[i].busy.value);
      exposed += fmt::format(",{}", t.streams[i].exposed.value);
    }
    auto optional = [](const std::optional<double>& n) {
      return nlohmann::json(n ? nlohmann::json(*n) : nlohmann::json()).dump();
    };
    std::string held;
    for (std::string_view name : kHeldNames) held += (held.empty() ? "" : ",") + PageQuoted(name);
    std::string reasons;
    for (size_t r = 0; r < price::kReasonCount; ++r)
      reasons += (reasons.empty() ? "" : ",") + PageQuoted(Name(static_cast<price::Reason>(r)));
    std::optional<price::CostModel::StepRange> range = step_.model->RangeOf(t.makespan);
    std::string expected =
        range ? fmt::format("[{},{}]", range->low.value, range->high.value) : "null";
    return fmt::format(
        "\"name\":{},\"graph\":{},\"mesh\":{},\"cluster\":{},\"model\":{},\"ranks\":{},"
        "\"machines\":{},\"makespan\":{},\"compute\":{},\"exposed\":{},\"bound\":{},"
        "\"bound_name\":{},\"peak\":{},\"peak_position\":{},\"cap\":{},\"tokens_per_second\":{},"
        "\"mfu\":{},\"trained\":{},\"tokens\":{},\"batch\":[{}],\"streams\":{}],\"busy\":{}],"
        "\"stream_exposed\":{}],\"held_names\":[{}],"
        "\"reason_names\":[{}],\"execution\":{},\"expected\":{}",
        PageQuoted(step_.name), PageQuoted(graph_.name()), PageQuoted(Format(module_.mesh)),
        PageQuoted(step_.model->cluster().name),
        PageQuoted(Name(step_.model->options().collectives)), s_.ranks, s_.nodes, t.makespan.value,
        t.compute.busy.value, t.exposed.value, s_.bounds.best().value,
        PageQuoted(NameOfBest(s_.bounds)), s_.peak.value, t.peak_position, s_.memory_cap.value,
        optional(s_.tokens_per_second), optional(s_.mfu), PageQuoted(step_.trained),
        s_.tokens ? std::to_string(*s_.tokens) : "null", BatchShape(), streams, busy, exposed, held,
        reasons, PageQuoted(Name(step_.model->options().execution)), expected);
  }

  // The number of sequences and their length, if the tokens are a two-dimensional batch input.
  std::string BatchShape() const {
    for (const Input& input : graph_.inputs()) {
      TypeId type = input.global.type ? input.global.type : graph_.type(input.value);
      if (input.role != InputRole::kBatch || !IsInteger(graph_.types().dtype(type))) continue;
      const bool sized = graph_.types().elements_bound(type) == s_.tokens;
      std::span<const Dim> dims = graph_.types().dims(type);
      if (!sized || dims.size() != 2) return "";
      const SymbolTable& symbols = graph_.types().symbols();
      return fmt::format("{},{}", symbols.Bound(dims[0]), symbols.Bound(dims[1]));
    }
    return "";
  }

  int64_t Text(std::string_view text) { return static_cast<int64_t>(strings_.Number(text)); }

  // Many values have equal types, so each is printed once.
  int64_t TypeText(TypeId type) {
    auto [at, is_new] = type_text_.try_emplace(type.index(), 0);
    if (is_new) at->second = Text(PrintType(module_, graph_, type));
    return at->second;
  }

  std::string Nodes() {
    // `reached` and `live` are differences. `begin` and `left` are relative to `reached`, `end` to
    // `begin`.
    Columns columns({"name", "op", "scope", "type", "phase", "kind", "reached", "begin", "end",
                     "left", "live", "bytes"});
    Nanos reached;
    Bytes live;
    for (size_t i = 0; i < s_.timeline.order.size(); ++i) {
      NodeId id = s_.timeline.order[i];
      const price::NodeTimes& times = s_.timeline.nodes[id.index()];
      Bytes bytes;
      for (ValueId v : graph_.results(id)) bytes += graph_.types().bytes(graph_.type(v));
      columns.Add(
          {Text(NameOf(graph_, id)), Text(OpName(graph_, id)), Text(graph_.scope(id)),
           graph_[id].result_count == 0 ? Text("") : TypeText(graph_.type(graph_[id].first_result)),
           static_cast<int64_t>(graph_[id].phase), static_cast<int64_t>(s_.graph[id].kind),
           (times.reached - reached).value, (times.begin - times.reached).value,
           (times.end - times.begin).value, (times.left - times.reached).value,
           (s_.timeline.live[i] - live).value, bytes.value});
      reached = times.reached;
      live = s_.timeline.live[i];
    }
    return columns.Finish();
  }

  std::string Collectives() {
    Columns columns({"node", "wait", "stream", "kind", "over", "why", "unit", "tensors", "bytes",
                     "queued", "shared", "exposed", "reason0", "reason1", "reason2", "reason3",
                     "reason4", "reason5", "reason6"});
    static_assert(price::kReasonCount == 7);
    std::vector<Launch> launches = FindLaunches(module_, graph_, s_);
    for (size_t i = 0; i < launches.size(); ++i) {
      const price::CollectiveTimes& c = s_.timeline.collectives[i];
      const auto& [purpose, sums] = launches[i];
      const auto& reasons = sums.by_reason;
      columns.Add({position_[c.start.index()], c.wait ? position_[c.wait.index()] : -1,
                   static_cast<int64_t>(c.stream) + 1, Text(purpose.kind), Text(purpose.over),
                   Text(purpose.why), Text(purpose.unit), sums.tensors, sums.bytes.value,
                   c.queued.value, c.shared.value, c.exposed.value, reasons[0].value,
                   reasons[1].value, reasons[2].value, reasons[3].value, reasons[4].value,
                   reasons[5].value, reasons[6].value});
    }
    return columns.Finish();
  }

  Held HeldBy(const Storage& storage, const std::vector<Held>& of_inputs,
              const std::vector<bool>& is_gradient) const {
    if (!storage.birth) return of_inputs[storage.value.index()];
    if (is_gradient[storage.value.index()]) return Held::kGradients;
    // An unknown op may also have an attribute with that name.
    const AttrValue* attr = graph_.attrs(storage.birth).Find("why");
    const Why* why = attr != nullptr ? std::get_if<Why>(attr) : nullptr;
    if (why != nullptr && *why == Why::kUnshard) return Held::kGathered;
    if (why != nullptr && *why == Why::kGrad) return Held::kGradients;
    bool is_kept = graph_[storage.birth].phase == Phase::kForward && storage.death &&
                   graph_[storage.death].phase != Phase::kForward;
    return is_kept ? Held::kKept : Held::kOther;
  }

  std::string Storages() {
    std::vector<Held> of_inputs(graph_.value_count(), Held::kInputs);
    for (const Input& input : graph_.inputs()) {
      if (input.role == InputRole::kParam) of_inputs[input.value.index()] = Held::kParameters;
      if (input.role == InputRole::kOpt) of_inputs[input.value.index()] = Held::kOptimizer;
    }
    std::vector<bool> is_gradient(graph_.value_count());
    for (const Output& output : graph_.outputs()) {
      if (output.role == OutputRole::kGrad) is_gradient[output.value.index()] = true;
    }
    Liveness liveness(graph_);
    // A birth before the first node and a death after the last are -1.
    Columns columns({"name", "type", "bytes", "birth", "death", "held"});
    for (const Storage& storage : liveness.storages()) {
      if (storage.space != Space::kDevice || storage.bytes.value == 0) continue;
      columns.Add({Text("%" + std::string(graph_.name(storage.value))),
                   TypeText(graph_.type(storage.value)), storage.bytes.value,
                   storage.birth ? position_[storage.birth.index()] : -1,
                   storage.death ? position_[storage.death.index()] : -1,
                   static_cast<int64_t>(HeldBy(storage, of_inputs, is_gradient))});
    }
    return columns.Finish();
  }

  // Positions, as differences.
  std::string CriticalNodes() const {
    std::string out;
    int64_t last = 0;
    auto own = static_cast<size_t>(&graph_ - module_.graphs.data());
    for (const price::PathStep& step : s_.path.steps) {
      if (step.graph != own && ProgramAxis(module_)) continue;
      int64_t position = position_[step.node.index()];
      if (!out.empty()) out += ',';
      AppendInt(out, position - last);
      last = position;
    }
    return out;
  }

  static std::string Passes(std::span<const compile::PassRecord> passes) {
    std::string out;
    for (const compile::PassRecord& record : passes) {
      std::string stats;
      for (const auto& [name, count] : record.stats)
        stats += fmt::format("{}[{},{}]", stats.empty() ? "" : ",", PageQuoted(name), count);
      std::string remarks;
      for (const compile::Remark& remark : record.remarks)
        remarks += (remarks.empty() ? "" : ",") + PageQuoted(Format(remark));
      out += fmt::format(
          "{}{{\"name\":{},\"changed\":{},\"stats\":[{}],\"before\":[{},{}],\"after\":[{},{}],"
          "\"remarks\":[{}]}}",
          out.empty() ? "" : ",", PageQuoted(record.pass), record.changed == Changed::kYes, stats,
          record.before.launches, record.before.peak.value, record.after.launches,
          record.after.peak.value, remarks);
    }
    return "[" + out + "]";
  }

  const SimulatedStep& step_;
  const Module& module_;
  const Graph& graph_;
  const price::Simulation& s_;
  // Indexed by node: its position in the order.
  std::vector<int64_t> position_;
  std::unordered_map<uint32_t, int64_t> type_text_;
  Strings strings_;
};

}  // namespace

std::string PageJson(const nlohmann::ordered_json& json) {
  std::string text = json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  // `</script` would end the script, and `<!--` has a meaning in HTML.
  for (size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at))
    text.replace(at, 1, "\\u003c");
  return text;
}

std::string PageQuoted(std::string_view text) { return PageJson(nlohmann::ordered_json(text)); }

std::string FormatStepData(const SimulatedStep& step, std::span<const compile::PassRecord> passes) {
  return StepWriter(step).Write(passes);
}

}  // namespace heddle
