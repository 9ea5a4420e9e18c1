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

void AddLines(const std::shared_ptr<const MappedFile>& file, std::vector<DocumentPart>& parts) {
  std::string_view text = file->bytes();
  for (size_t begin = 0; begin < text.size();) {
    size_t newline = text.find('\n', std::min(begin + kPartBytes, text.size()));
    size_t end = newline == std::string_view::npos ? text.size() : newline + 1;
    parts.push_back({file, begin, end, /*is_jsonl=*/true});
    begin = end;
  }
}

Status AddDocuments(const std::string& path, bool in_folder, DocumentFiles& out) {
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
    AddLines(file, out.parts);
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

Status VisitLine(std::string_view line, const std::string& file, const std::string& key,
                 const std::function<Status(std::string_view)>& visit) {
  HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(std::string(line), file, Diag::kData));
  JsonValue root = document.root();
  if (!root.is_object())
    return document.Fail(root, "the line is {}, expected an object", Shown(root));
  std::optional<JsonValue> text = root.Find(key);
  if (!text) return document.Fail(root, "the line has no `{}`; --key names the text", key);
  if (!text->is_string())
    return document.Fail(*text, "`{}` is {}, expected text", key, Shown(*text));
  return visit(text->string());
}

}  // namespace

Result<DocumentFiles> ListDocuments(const std::vector<std::string>& paths) {
  DocumentFiles out;
  for (const std::string& path : paths) {
    if (!IsDirectory(path)) {
      HEDDLE_RETURN_IF_ERROR(AddDocuments(path, /*in_folder=*/false, out));
      continue;
    }
    HEDDLE_TRY(std::vector<std::string> files, FilesBelow(path));
    for (const std::string& file : files)
      HEDDLE_RETURN_IF_ERROR(AddDocuments(file, /*in_folder=*/true, out));
  }
  return out;
}

Status ForEachDocument(const DocumentPart& part, const std::string& key,
                       const std::function<Status(std::string_view)>& visit) {
  HEDDLE_RETURN_IF_ERROR(part.file->CheckWhole());
  std::string_view text = part.file->bytes().substr(part.begin, part.end - part.begin);
  if (!part.is_jsonl) return visit(text);
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (!Trim(line).empty()) {
      Status done = VisitLine(line, part.file->path(), key, visit);
      if (!done.ok()) return InLine(part, part.begin + begin, std::move(done).failure());
    }
    begin = end + 1;
  }
  return Done{};
}

}  // namespace heddle::run
