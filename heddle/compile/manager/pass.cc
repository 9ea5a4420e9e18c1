#include "heddle/compile/manager/pass.h"

#include <charconv>

#include "heddle/core/base/scanner.h"
#include "heddle/core/base/text.h"

namespace heddle::compile {
namespace {

constexpr std::string_view kNumerics[] = {"exact", "regrouping", "rounding"};
constexpr RemarkKindDoc kRemarkKinds[] = {
#define HEDDLE_REMARK(ident, name, meaning) {name, meaning},
#include "heddle/compile/manager/remarks.def"
#undef HEDDLE_REMARK
};

template <typename T>
Status ParseNumber(std::string_view text, T& out, std::string_view what) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error == std::errc() && end == text.data() + text.size()) return Done{};
  return Error(Diag::kPassOption, "`{}` is not {}", text, what);
}

}  // namespace

std::string_view Name(Numerics numerics) { return kNumerics[static_cast<size_t>(numerics)]; }

std::string_view Name(RemarkKind kind) { return kRemarkKinds[static_cast<size_t>(kind)].name; }
std::span<const RemarkKindDoc> AllRemarkKinds() { return kRemarkKinds; }

std::string Format(const Remark& remark) {
  std::string out = "@" + remark.graph;
  if (!remark.value.empty()) out += " %" + remark.value;
  return fmt::format("{}: {} [{}]", out, remark.text, Name(remark.kind));
}

void PassContext::Count(std::string_view stat, int64_t n) {
  for (auto& [name, count] : counts_) {
    if (name == stat) {
      count += n;
      return;
    }
  }
  counts_.emplace_back(stat, n);
}

Status ParseOption(std::string_view text, bool& out) {
  if (text != "true" && text != "false")
    return Error(Diag::kPassOption, "`{}` is not a boolean; write true or false", text);
  out = text == "true";
  return Done{};
}
Status ParseOption(std::string_view text, int64_t& out) {
  return ParseNumber(text, out, "an integer");
}
Status ParseOption(std::string_view text, double& out) {
  return ParseNumber(text, out, "a number");
}
Status ParseOption(std::string_view text, Bytes& out) {
  HEDDLE_TRY(out, ParseBytes(text));
  return Done{};
}
Status ParseOption(std::string_view text, std::string& out) {
  if (!text.starts_with('"')) {
    out = text;
    return Done{};
  }
  std::optional<std::string> unquoted = Scanner(text).TakeQuoted();
  if (!unquoted) return Error(Diag::kPassOption, "a quoted string has no closing quote");
  out = std::move(*unquoted);
  return Done{};
}

std::string FormatOption(bool value) { return value ? "true" : "false"; }
std::string FormatOption(int64_t value) { return std::to_string(value); }
std::string FormatOption(double value) { return fmt::format("{}", value); }
std::string FormatOption(Bytes value) {
  for (auto [unit, name] :
       {std::pair(int64_t{1} << 30, "GiB"), {int64_t{1} << 20, "MiB"}, {int64_t{1} << 10, "KiB"}}) {
    if (value.value != 0 && value.value % unit == 0)
      return fmt::format("{}{}", value.value / unit, name);
  }
  return std::to_string(value.value);
}
std::string FormatOption(const std::string& value) {
  return value.find_first_of(" ,{}[]\"\n") == std::string::npos ? value : Quoted(value);
}

const PassDef* PassTable::Find(std::string_view name) const {
  for (const PassDef* pass : passes) {
    if (pass->name == name) return pass;
  }
  return nullptr;
}

const PassTable::Named* PassTable::FindPipeline(std::string_view name) const {
  for (const Named& pipeline : pipelines) {
    if (pipeline.name == name) return &pipeline;
  }
  return nullptr;
}

}  // namespace heddle::compile
