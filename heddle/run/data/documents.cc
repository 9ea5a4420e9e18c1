#include "heddle/run/data/documents.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <unistd.h>

#include "heddle/core/base/file.h"
#include "heddle/core/base/json.h"
#include "heddle/core/base/text.h"
#include "heddle/core/base/utf8.h"
#include "heddle/run/data/files_below.h"
#include "heddle/run/data/source.h"

namespace heddle::run {
namespace {

// JSONL is divided into parts of this size, which threads work on.
constexpr size_t kPartBytes = size_t{1} << 20;

// Whether the first line that is not blank has a completion. A damaged line is reported when it is
// read.
bool BeginsWithPair(std::string_view text, const std::string& completion) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    if (!Trim(line).empty()) {
      Result<JsonDocument> parsed = JsonDocument::Parse(std::string(line), "", Diag::kData);
      return parsed.ok() && parsed->root().Find(completion).has_value();
    }
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return false;
}

void AddLines(const std::shared_ptr<const MappedFile>& file, const DocumentKeys& keys,
              DocumentFiles& out) {
  std::string_view text = file->bytes();
  bool has_pairs = BeginsWithPair(text, keys.completion);
  out.has_pairs |= has_pairs;
  for (size_t begin = 0; begin < text.size();) {
    size_t newline = text.find('\n', std::min(begin + kPartBytes, text.size()));
    size_t end = newline == std::string_view::npos ? text.size() : newline + 1;
    out.parts.push_back({file, begin, end, /*is_jsonl=*/true, has_pairs});
    begin = end;
  }
}

Status AddDocuments(const std::string& path, bool in_folder, const DocumentKeys& keys,
                    DocumentFiles& out) {
  if (IsTokenFile(path))
    return Error(Diag::kData, "`{}` has the name of a token file, expected text or JSONL", path);
  HEDDLE_RETURN_IF_ERROR(CheckNotParquet(path));
  HEDDLE_TRY(auto file, MappedFile::Open(path));
  size_t size = file->bytes().size();
  bool is_jsonl = path.ends_with(".jsonl");
  if (!is_jsonl) {
    size_t good = FirstNotUtf8(file->bytes());
    if (good < size && !in_folder)
      return Error(Diag::kData, "`{}` is not text: byte {} is not UTF-8", path, good);
    if (good < size) {
      ++out.skipped;
      return Done{};
    }
  }
  ++out.files;
  out.bytes += static_cast<int64_t>(size);
  if (is_jsonl)
    AddLines(file, keys, out);
  else if (size > 0)
    out.parts.push_back({file, 0, size});
  return Done{};
}

// Moves errors of a line to its place in the file. `offset` is that of the line in the part.
Failure InLine(const DocumentPart& part, size_t offset, Failure failure) {
  auto before = part.file ? part.file->bytes().substr(0, part.begin + offset)
                          : std::string_view(part.lines).substr(0, offset);
  int64_t line = part.lines_before + std::ranges::count(before, '\n');
  for (Diagnostic& diagnostic : failure.diagnostics) diagnostic.line += static_cast<uint32_t>(line);
  return failure;
}

// Returns the text at a key of a line. `flag` chooses the key.
Result<std::string_view> TextAt(const JsonDocument& line, const std::string& key,
                                std::string_view flag) {
  constexpr std::string_view kRender =
      "apply the chat template first, which makes prompts and completions (docs/finetune.md)";
  JsonValue root = line.root();
  if (!root.is_object()) return line.Fail(root, "the line is {}, expected an object", Shown(root));
  std::optional<JsonValue> text = root.Find(key);
  if (!text && root.Find("messages"))
    return line.Fail(*root.Find("messages"), "the line has `messages` instead of `{}`; {}", key,
                     kRender);
  if (!text) return line.Fail(root, "the line has no `{}`; {} names the text", key, flag);
  if (text->is_array())
    return line.Fail(*text, "`{}` is a list, expected text; if it has messages, {}", key, kRender);
  if (!text->is_string()) return line.Fail(*text, "`{}` is {}, expected text", key, Shown(*text));
  return text->string();
}

Status VisitLine(std::string_view line, const std::string& file, bool is_pair,
                 const DocumentKeys& keys, const std::function<Status(const Document&)>& visit) {
  HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(std::string(line), file, Diag::kData));
  if (!is_pair) {
    HEDDLE_TRY(std::string_view text, TextAt(document, keys.text, "`heddle tokenize --key`"));
    return visit({text});
  }
  HEDDLE_TRY(std::string_view prompt, TextAt(document, keys.prompt, "`heddle tokenize --prompt`"));
  HEDDLE_TRY(std::string_view completion,
             TextAt(document, keys.completion, "`heddle tokenize --completion`"));
  return visit({std::string(prompt).append(completion), prompt.size()});
}

// Reads lines in parts of kPartBytes and the rest of a line.
class LineReader {
 public:
  Result<std::optional<DocumentPart>> Next() {
    while (!ended_ && (rest_.size() < kPartBytes || rest_.find('\n') == std::string::npos))
      HEDDLE_RETURN_IF_ERROR(ReadMore());
    if (rest_.empty()) return std::optional<DocumentPart>();
    size_t newline = rest_.rfind('\n');
    DocumentPart part;
    part.is_jsonl = true;
    part.begin = bytes_;
    part.lines_before = lines_;
    part.lines = ended_ ? rest_ : rest_.substr(0, newline + 1);
    rest_.erase(0, part.lines.size());
    lines_ += std::ranges::count(part.lines, '\n');
    bytes_ += part.lines.size();
    part.end = bytes_;
    return std::optional(std::move(part));
  }

 private:
  Status ReadMore() {
    size_t size = rest_.size();
    rest_.resize(size + kPartBytes);
    ssize_t got = ::read(STDIN_FILENO, rest_.data() + size, kPartBytes);
    rest_.resize(size + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno != EINTR)
      return Error(Diag::kFileRead, "cannot read standard input: {}", std::strerror(errno));
    ended_ = got == 0;
    return Done{};
  }

  std::string rest_;
  bool ended_ = false;
  // What earlier parts have.
  size_t bytes_ = 0;
  int64_t lines_ = 0;
};

}  // namespace

DocumentSource PartsOf(const DocumentFiles& documents) {
  return [&documents, next = size_t{0}]() mutable -> Result<std::optional<DocumentPart>> {
    if (next == documents.parts.size()) return std::optional<DocumentPart>();
    return std::optional(documents.parts[next++]);
  };
}

DocumentSource StandardInputParts() {
  return [reader = LineReader()]() mutable { return reader.Next(); };
}

Result<DocumentFiles> ListDocuments(const std::vector<std::string>& paths,
                                    const DocumentKeys& keys) {
  DocumentFiles out;
  for (const std::string& path : paths) {
    if (!IsDirectory(path)) {
      HEDDLE_RETURN_IF_ERROR(AddDocuments(path, /*in_folder=*/false, keys, out));
      continue;
    }
    HEDDLE_TRY(std::vector<std::string> files, FilesBelow(path));
    for (const std::string& file : files)
      HEDDLE_RETURN_IF_ERROR(AddDocuments(file, /*in_folder=*/true, keys, out));
  }
  return out;
}

Status ForEachDocument(const DocumentPart& part, const DocumentKeys& keys,
                       const std::function<Status(const Document&)>& visit) {
  if (part.file) HEDDLE_RETURN_IF_ERROR(part.file->CheckWhole());
  std::string_view text = part.text();
  std::string name = part.file ? part.file->path() : "<stdin>";
  if (!part.is_jsonl) return visit({text});
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (!Trim(line).empty()) {
      Status done = VisitLine(line, name, part.has_pairs, keys, visit);
      if (!done.ok()) return InLine(part, begin, std::move(done).failure());
    }
    begin = end + 1;
  }
  return Done{};
}

}  // namespace heddle::run
