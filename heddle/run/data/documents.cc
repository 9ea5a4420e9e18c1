#include "heddle/run/data/documents.h"

#include <algorithm>

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

// Moves errors of a line to its place in the file.
Failure InLine(const DocumentPart& part, size_t offset, Failure failure) {
  auto line = std::ranges::count(part.file->bytes().substr(0, offset), '\n');
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

Status VisitLine(std::string_view line, const DocumentPart& part, const DocumentKeys& keys,
                 const std::function<Status(const Document&)>& visit) {
  HEDDLE_TRY(JsonDocument document,
             JsonDocument::Parse(std::string(line), part.file->path(), Diag::kData));
  if (!part.has_pairs) {
    HEDDLE_TRY(std::string_view text, TextAt(document, keys.text, "--key"));
    return visit({text});
  }
  HEDDLE_TRY(std::string_view prompt, TextAt(document, keys.prompt, "--prompt"));
  HEDDLE_TRY(std::string_view completion, TextAt(document, keys.completion, "--completion"));
  return visit({std::string(prompt).append(completion), prompt.size()});
}

}  // namespace

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
  HEDDLE_RETURN_IF_ERROR(part.file->CheckWhole());
  std::string_view text = part.file->bytes().substr(part.begin, part.end - part.begin);
  if (!part.is_jsonl) return visit({text});
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (!Trim(line).empty()) {
      Status done = VisitLine(line, part, keys, visit);
      if (!done.ok()) return InLine(part, part.begin + begin, std::move(done).failure());
    }
    begin = end + 1;
  }
  return Done{};
}

}  // namespace heddle::run
