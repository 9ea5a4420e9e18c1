#include "heddle/compile/manager/pipeline.h"

#include <utility>

#include "heddle/core/base/scanner.h"
#include "heddle/core/base/text.h"

namespace heddle::compile {
namespace {

// Limits nesting of pipelines that name each other, and of hostile texts.
constexpr int kMaxDepth = 16;

class PipelineParser {
 public:
  // `names`: whether passes named in the text count as requested by name.
  PipelineParser(std::string_view text, const PassTable& passes, bool names, int depth = 0)
      : scan_(text), passes_(passes), names_(names), depth_(depth) {}

  Result<Pipeline> Parse() {
    HEDDLE_TRY(Pipeline pipeline, ParseItems('\0'));
    if (!scan_.AtEnd()) return Bad("`,` or the end");
    return pipeline;
  }

 private:
  Failure Bad(std::string_view expected) {
    return {{SourceText("pipeline", scan_.text())
                 .At(MakeDiagnostic(Diag::kPipeline, "expected {}", expected), scan_.offset())}};
  }
  Failure At(size_t offset, size_t width, Diagnostic diagnostic) {
    return {{SourceText("pipeline", scan_.text()).At(std::move(diagnostic), offset, width)}};
  }

  std::string_view TakeName() {
    scan_.SkipSpace();
    size_t begin = scan_.offset();
    // Pass names contain hyphens, like scopes.
    scan_.TakeRawRun(CharClass::kScope);
    return scan_.text().substr(begin, scan_.offset() - begin);
  }

  Result<Pipeline> ParseItems(char close) {
    if (depth_ > kMaxDepth)
      return Error(Diag::kPipeline, "pipelines nest deeper than {}", kMaxDepth);
    Pipeline items;
    // A pipeline may be empty.
    if (scan_.AtEnd() || scan_.Peek() == close) return items;
    do {
      HEDDLE_TRY(Pipeline item, ParseItem());
      for (PipelineItem& one : item) items.push_back(std::move(one));
    } while (scan_.Take(','));
    return items;
  }

  // An item. The name of a pipeline expands to several.
  Result<Pipeline> ParseItem() {
    scan_.SkipSpace();
    size_t begin = scan_.offset();
    std::string_view name = TakeName();
    if (name.empty()) return Bad("the name of a pass");
    if (name == "repeat") return ParseRepeat();
    if (name == "rounding") return ParseRounding();
    // If a pass and a pipeline share a name, options select the pass.
    const PassTable::Named* named = scan_.Peek() == '{' ? nullptr : passes_.FindPipeline(name);
    if (named != nullptr) {
      return PipelineParser(named->text, passes_, /*names=*/false, depth_ + 1).Parse();
    }
    const PassDef* pass = passes_.Find(name);
    if (pass == nullptr) {
      std::vector<std::string_view> names;
      for (const PassDef* known : passes_.passes) names.push_back(known->name);
      for (const PassTable::Named& known : passes_.pipelines) names.push_back(known.name);
      return At(begin, name.size(),
                MakeDiagnostic(Diag::kUnknownPass, "unknown pass `{}`{}", name,
                               NearestHint(name, names)));
    }
    PipelineItem item;
    item.pass = pass;
    item.named = names_;
    if (pass->make_options != nullptr) item.options = pass->make_options();
    if (scan_.Take('{')) HEDDLE_RETURN_IF_ERROR(ParseOptions(item));
    Pipeline single;
    single.push_back(std::move(item));
    return single;
  }

  Result<Pipeline> ParseBraces(std::string_view behind) {
    if (!scan_.Take('{')) return Bad(fmt::format("`{{` after `{}`", behind));
    ++depth_;
    HEDDLE_TRY(Pipeline items, ParseItems('}'));
    --depth_;
    if (!scan_.Take('}')) return Bad("`,` or `}`");
    return items;
  }

  Result<Pipeline> ParseRounding() {
    bool outside = std::exchange(names_, true);
    HEDDLE_TRY(Pipeline items, ParseBraces("rounding"));
    names_ = outside;
    return items;
  }

  Result<Pipeline> ParseRepeat() {
    HEDDLE_TRY(Pipeline items, ParseBraces("repeat"));
    PipelineItem item;
    item.repeated = std::move(items);
    Pipeline single;
    single.push_back(std::move(item));
    return single;
  }

  Status ParseOptions(PipelineItem& item) {
    if (scan_.Take('}')) return Done{};
    do {
      scan_.SkipSpace();
      size_t begin = scan_.offset();
      std::string_view name = scan_.TakeRawRun(CharClass::kWord);
      if (name.empty() || !scan_.Take('=')) return Bad("an option, as in `max_bytes=64MiB`");
      size_t value_begin = scan_.offset();
      std::string_view value = TakeValue();
      const OptionDef* option = nullptr;
      std::vector<std::string_view> names;
      for (const OptionDef& known : item.pass->options) {
        names.push_back(known.name);
        if (known.name == name) option = &known;
      }
      if (option == nullptr) {
        return At(begin, name.size(),
                  MakeDiagnostic(Diag::kPassOption, "{} has no option `{}`{}", item.pass->name,
                                 name, NearestHint(name, names)));
      }
      Status set = option->set(item.options.get(), value);
      if (!set.ok()) {
        Diagnostic why = set.diagnostics()[0];
        why.message = fmt::format("{}: option `{}`: {}", item.pass->name, name, why.message);
        return At(value_begin, value.size(), std::move(why));
      }
    } while (scan_.Take(','));
    if (!scan_.Take('}')) return Bad("`,` or `}`");
    return Done{};
  }

  // The value ends at a comma or a brace. Brackets may contain commas, and quotes any character.
  std::string_view TakeValue() {
    scan_.SkipSpace();
    size_t begin = scan_.offset();
    if (scan_.PeekRaw() == '"' && scan_.TakeQuoted())
      return scan_.text().substr(begin, scan_.offset() - begin);
    int depth = 0;
    while (scan_.offset() < scan_.text().size()) {
      char c = scan_.PeekRaw();
      if (depth == 0 && (c == ',' || c == '}')) break;
      depth += c == '[';
      depth -= c == ']';
      scan_.set_offset(scan_.offset() + 1);
    }
    return Trim(scan_.text().substr(begin, scan_.offset() - begin));
  }

  Scanner scan_;
  const PassTable& passes_;
  bool names_;
  int depth_;
};

}  // namespace

Result<Pipeline> ParsePipeline(std::string_view text, const PassTable& passes, Author author) {
  return PipelineParser(text, passes, author == Author::kUser).Parse();
}

std::string Format(const PipelineItem& item) {
  if (item.pass == nullptr) return "repeat{" + Format(item.repeated) + "}";
  std::string out(item.pass->name);
  std::string shown;
  if (item.options != nullptr) {
    std::shared_ptr<void> defaults = item.pass->make_options();
    for (const OptionDef& option : item.pass->options) {
      std::string value = option.get(item.options.get());
      if (value == option.get(defaults.get())) continue;
      if (!shown.empty()) shown += ',';
      shown += fmt::format("{}={}", option.name, value);
    }
  }
  return shown.empty() ? out : out + "{" + shown + "}";
}

std::string Format(const Pipeline& pipeline) {
  std::string out;
  for (const PipelineItem& item : pipeline) {
    if (!out.empty()) out += ", ";
    out += Format(item);
  }
  return out;
}

}  // namespace heddle::compile
