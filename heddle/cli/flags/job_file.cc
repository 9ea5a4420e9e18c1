#include "heddle/cli/flags/job_file.h"

#include <algorithm>

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_WINDOWS_COMPAT 0
#include <toml++/toml.h>

#include "heddle/core/base/text.h"

namespace heddle {
namespace {

constexpr int64_t kMostDots = 1000;

// The mistake as a sentence, by the part of TOML that the parser was reading.
std::string_view TomlMistake(std::string_view said) {
  constexpr std::string_view kPrefix = "Error while parsing ";
  std::string_view part;
  if (said.starts_with(kPrefix))
    part = said.substr(kPrefix.size(), said.find(':') - kPrefix.size());
  auto has = [&](std::string_view text) { return said.find(text) != std::string_view::npos; };
  if (has("cannot redefine")) return "this name is taken by an earlier key or table";
  if (has("nested")) return "values are nested too deeply";
  if (part.ends_with("string") || part == "unicode scalar sequence")
    return "a text must end with its quote on the same line, without control characters or "
           "unknown escapes";
  if (part.ends_with("integer"))
    return "not a whole number that fits into 64 bits; other texts go in quotes";
  if (part.ends_with("floating-point")) return "not a number that a double can hold";
  if (part.find("date") != std::string_view::npos || part == "time") return "not a date or a time";
  if (part == "boolean") return "expected true or false";
  if (part == "array") return "expected `,` or `]` in a list";
  if (part == "inline table") return "expected `,` or `}` in a table";
  if (part == "table header") return "expected a table, as in `[training]`";
  if (part == "comment") return "a comment holds control characters";
  if (part == "value") return "expected a value: a text in quotes, a number, true, false or a list";
  return "expected a key and a value, as in `steps = 10`, and nothing after them";
}

// Reads one text.
class JobReader {
 public:
  JobReader(std::string_view name, std::string_view text) : source_(name, text), text_(text) {
    for (size_t at = 0; at != std::string_view::npos;) {
      lines_.push_back(at);
      at = text.find('\n', at);
      if (at != std::string_view::npos) ++at;
    }
  }

  Result<std::vector<JobEntry>> Read();

 private:
  Status CheckDepth() const;
  // Columns count characters, not bytes.
  size_t Offset(const toml::source_position& position) const;
  void AddTable(const toml::table& table, const std::string& prefix);
  void AddValue(const std::string& key, const toml::key& written, const toml::node& node);
  void Mistake(size_t offset, size_t width, std::string what) {
    mistakes_.push_back(source_.At(MakeDiagnostic(Diag::kJobFile, "{}", what), offset, width));
  }

  SourceText source_;
  std::string_view text_;
  std::vector<size_t> lines_;
  std::vector<JobEntry> entries_;
  Diagnostics mistakes_;
};

size_t JobReader::Offset(const toml::source_position& position) const {
  if (position.line == 0 || position.line > lines_.size()) return text_.size();
  size_t at = lines_[position.line - 1];
  for (toml::source_index i = 1; i < position.column && at < text_.size(); ++i) {
    do {
      ++at;
    } while (at < text_.size() && (static_cast<unsigned char>(text_[at]) & 0xC0) == 0x80);
  }
  return at;
}

// The text of a scalar; nullopt for other nodes.
std::optional<JobValue> ReadScalar(const toml::node& node) {
  if (auto text = node.as_string()) return JobValue{JobValueKind::kText, {text->get()}};
  if (auto number = node.as_integer())
    return JobValue{JobValueKind::kInt, {std::to_string(number->get())}};
  if (auto flag = node.as_boolean())
    return JobValue{JobValueKind::kBool, {flag->get() ? "true" : "false"}};
  if (auto number = node.as_floating_point()) {
    std::string text;
    AppendFloat(text, number->get());
    return JobValue{JobValueKind::kNumber, {text}};
  }
  return std::nullopt;
}

void JobReader::AddValue(const std::string& key, const toml::key& written, const toml::node& node) {
  JobEntry entry;
  entry.key = key;
  entry.offset = Offset(written.source().begin);
  entry.width = std::max<size_t>(Offset(written.source().end) - entry.offset, 1);
  if (written.str().empty())
    return Mistake(entry.offset, entry.width, "the name of a key is empty");
  if (const toml::array* list = node.as_array()) {
    entry.value.kind = JobValueKind::kTexts;
    for (const toml::node& item : *list) {
      if (!item.is_string())
        return Mistake(entry.offset, entry.width,
                       fmt::format("`{}` is a list with other things than texts", key));
      entry.value.texts.push_back(item.as_string()->get());
    }
  } else if (std::optional<JobValue> value = ReadScalar(node)) {
    entry.value = *std::move(value);
  } else {
    return Mistake(
        entry.offset, entry.width,
        fmt::format("`{}` is a date or time, expected a text, a number, true, false or a "
                    "list of texts",
                    key));
  }
  entries_.push_back(std::move(entry));
}

void JobReader::AddTable(const toml::table& table, const std::string& prefix) {
  for (const auto& [key, node] : table) {
    std::string name = prefix + std::string(key.str());
    if (const toml::table* inner = node.as_table()) {
      AddTable(*inner, name + ".");
    } else {
      AddValue(name, key, node);
    }
  }
}

// Nested tables use the stack, also in the TOML parser. Only keys with many dots create them.
Status JobReader::CheckDepth() const {
  for (size_t begin : lines_) {
    std::string_view line = text_.substr(begin, text_.find('\n', begin) - begin);
    auto dots = std::ranges::count(line, '.');
    if (dots > kMostDots)
      return Failure{
          {source_.At(MakeDiagnostic(Diag::kJobFile, "a line with {} dots; no job has more than {}",
                                     dots, kMostDots),
                      begin)}};
  }
  return Done{};
}

Result<std::vector<JobEntry>> JobReader::Read() {
  HEDDLE_RETURN_IF_ERROR(CheckDepth());
  toml::parse_result parsed = toml::parse(text_);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    Mistake(Offset(error.source().begin), 1,
            fmt::format("not TOML: {}", TomlMistake(error.description())));
  } else {
    AddTable(parsed.table(), "");
  }
  // Tables keep their keys sorted by name.
  std::ranges::stable_sort(entries_, {}, &JobEntry::offset);
  std::vector<const JobEntry*> by_key;
  for (const JobEntry& entry : entries_) by_key.push_back(&entry);
  std::ranges::stable_sort(by_key, {}, &JobEntry::key);
  for (size_t i = 1; i < by_key.size(); ++i) {
    if (by_key[i]->key == by_key[i - 1]->key)
      Mistake(by_key[i]->offset, by_key[i]->width,
              fmt::format("`{}` is given twice, before in line {}", by_key[i]->key,
                          source_.Line(by_key[i - 1]->offset)));
  }
  if (mistakes_.empty()) return std::move(entries_);
  std::ranges::stable_sort(mistakes_, {}, [](const Diagnostic& mistake) {
    return std::pair(mistake.line, mistake.column);
  });
  return Failure{std::move(mistakes_)};
}

void AppendTomlString(std::string& out, std::string_view text) {
  out += '"';
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      out += c;
    }
  }
  out += '"';
}

std::string FormatValue(const JobValue& value) {
  std::string out;
  switch (value.kind) {
    case JobValueKind::kText: AppendTomlString(out, value.texts[0]); break;
    case JobValueKind::kTexts:
      out += '[';
      for (size_t i = 0; i < value.texts.size(); ++i) {
        if (i > 0) out += ", ";
        AppendTomlString(out, value.texts[i]);
      }
      out += ']';
      break;
    case JobValueKind::kInt:
    case JobValueKind::kNumber:
    case JobValueKind::kBool: out = value.texts[0]; break;
  }
  return out;
}

bool IsBareKey(std::string_view key) {
  return !key.empty() && std::ranges::all_of(key, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

struct TableText {
  std::string name;
  // Lines without their comments, and those.
  std::vector<std::pair<std::string, std::string>> lines;
};

constexpr size_t kMostPadding = 56;

}  // namespace

Result<std::vector<JobEntry>> ParseJob(std::string_view name, std::string_view text) {
  return JobReader(name, text).Read();
}

std::string FormatJob(const std::vector<JobLine>& lines) {
  // Keys without a table come first; after a table's heading they would belong to it.
  std::vector<TableText> tables{{"", {}}};
  for (const JobLine& line : lines) {
    size_t dot = line.key.rfind('.');
    std::string name = dot == std::string::npos ? "" : line.key.substr(0, dot);
    std::string key = line.key.substr(dot == std::string::npos ? 0 : dot + 1);
    HEDDLE_CHECK(IsBareKey(key), "a key that TOML would quote: " + line.key);
    auto table = std::ranges::find(tables, name, &TableText::name);
    if (table == tables.end()) table = tables.insert(tables.end(), {name, {}});
    table->lines.emplace_back(line.value ? fmt::format("{} = {}", key, FormatValue(*line.value))
                                         : fmt::format("# {} is not set", key),
                              line.value ? line.origin : "");
  }
  std::string out;
  for (const TableText& table : tables) {
    if (table.lines.empty()) continue;
    if (!out.empty()) out += '\n';
    if (!table.name.empty()) out += fmt::format("[{}]\n", table.name);
    size_t width = 0;
    for (const auto& [text, origin] : table.lines)
      if (!origin.empty() && text.size() <= kMostPadding) width = std::max(width, text.size());
    for (const auto& [text, origin] : table.lines)
      out += origin.empty() ? text + "\n" : fmt::format("{:<{}}  # {}\n", text, width, origin);
  }
  return out;
}

}  // namespace heddle
