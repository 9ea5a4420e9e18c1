// The part of the parser that reads types and attribute values. Not for use outside core/ir/.
#pragma once

#include <optional>
#include <string_view>

#include "heddle/core/base/result.h"
#include "heddle/core/base/scanner.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

// Collects diagnostics at offsets in one text.
class Reporter {
 public:
  Reporter(std::string_view file, std::string_view text) : source_(file, text) {}

  template <typename... Args>
  void Report(size_t offset, size_t width, Diag kind, fmt::format_string<Args...> format,
              Args&&... args) {
    // A damaged text may have a mistake on every line. Messages that are not shown are not
    // formatted.
    if (full()) {
      ++count_;
    } else {
      Report(offset, width, MakeDiagnostic(kind, format, std::forward<Args>(args)...));
    }
  }
  void Report(size_t offset, size_t width, Diagnostic diagnostic) {
    Add(source_.At(std::move(diagnostic), offset, width));
  }
  // Adds a diagnostic that already has a position.
  void Add(Diagnostic diagnostic) {
    if (diagnostics_.size() < kMost) diagnostics_.push_back(std::move(diagnostic));
    ++count_;
  }
  // Further mistakes are only counted.
  bool full() const { return diagnostics_.size() == kMost; }
  const SourceText& source() const { return source_; }
  uint32_t Line(size_t offset) const { return source_.Line(offset); }
  // Returns all diagnostics. After the first few hundred, only their number is added.
  Diagnostics Take() {
    if (count_ > kMost) {
      diagnostics_.push_back(
          MakeDiagnostic(Diag::kManyMistakes, "{} more mistakes are not shown", count_ - kMost));
    }
    return std::move(diagnostics_);
  }

 private:
  static constexpr size_t kMost = 256;
  SourceText source_;
  Diagnostics diagnostics_;
  size_t count_ = 0;
};

struct PlacedType {
  TypeId type;
  PlacementId placement = PlacementTable::kReplicated;
};

class TypeParser {
 public:
  TypeParser(Scanner& scan, Reporter& report, const Module& module, Graph& graph)
      : scan_(scan), report_(report), module_(module), graph_(graph) {}

  // A type, including `async` and `none`. Reports a diagnostic on failure.
  std::optional<PlacedType> ParseType();
  // A tensor type of the whole mesh, for any view of the module.
  std::optional<PlacedType> ParseGlobalType() { return ParseTensor(View::kGlobal); }
  // An attribute's value.
  std::optional<AttrValue> ParseLiteral();

 private:
  std::optional<PlacedType> ParseTensor(View view);
  std::optional<PlacedType> ParseAsync();
  bool ParseDims(View view, Dims& dims, Placement& placement);
  std::optional<Dim> ParseDim(View view, Placement& placement, size_t index);
  std::optional<Dim> ParseNamedDim();
  bool ParsePartials(Placement& placement);
  std::optional<Axes> ParseAxes(char close);
  std::optional<AxisId> ParseAxis();
  bool CheckAxisOnce(Placement& placement, size_t offset, size_t width);
  std::optional<AttrValue> ParseNumber();
  std::optional<AttrValue> ParseList();
  std::optional<AttrValue> ParseWord();

  Scanner& scan_;
  Reporter& report_;
  const Module& module_;
  Graph& graph_;
  // Types by their text, because a graph repeats few types often.
  HashIndex cache_index_;
  std::vector<std::pair<std::string_view, PlacedType>> cache_;
};

}  // namespace heddle
