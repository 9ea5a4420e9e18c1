#include "heddle/run/data/source.h"

#include <algorithm>
#include <cctype>

#include "heddle/core/base/file.h"
#include "heddle/run/data/files_below.h"

namespace heddle::run {
namespace {

// Whether the file's name contains the word `val`, `valid`, `validation` or `test`.
bool IsHeldOutName(const std::string& path) {
  std::string word;
  for (char c : path.substr(path.rfind('/') + 1) + ".") {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (word == "val" || word == "valid" || word == "validation" || word == "test") return true;
    word.clear();
  }
  return false;
}

Result<TokenSource> OpenTokenFolder(const std::vector<std::string>& paths) {
  TokenSource source;
  for (const std::string& path : paths) {
    // Opened together with its .bin.
    if (path.ends_with(".idx")) continue;
    HEDDLE_TRY(TokenFile file, OpenTokenFile(path));
    if (source.kind.empty()) source.kind = file.kind;
    if (source.kind != file.kind)
      return Error(Diag::kData, "`{}` has {}, but files before it have {}", path, file.kind,
                   source.kind);
    (IsHeldOutName(path) ? source.held_out : source.train).Add(std::move(file.segment));
  }
  return source;
}

Result<TokenSource> OpenTextFolder(const std::vector<std::string>& paths) {
  TokenSource source;
  source.kind = "text";
  source.is_text = true;
  for (const std::string& path : paths) {
    HEDDLE_RETURN_IF_ERROR(CheckNotParquet(path));
    Result<TokenSegment> text = OpenText(path);
    if (text.ok()) {
      source.train.Add(*std::move(text));
    } else if (text.diagnostics()[0].kind == Diag::kData) {
      ++source.skipped;
    } else {
      return std::move(text).failure();
    }
  }
  return source;
}

Result<TokenSource> OpenFolder(const std::string& folder) {
  HEDDLE_TRY(std::vector<std::string> paths, FilesBelow(folder));
  std::vector<std::string> token_files;
  std::vector<std::string> others;
  for (const std::string& path : paths) (IsTokenFile(path) ? token_files : others).push_back(path);
  if (token_files.empty()) return OpenTextFolder(paths);
  // Counts files that are not text, as for folders of text.
  HEDDLE_TRY(TokenSource texts, OpenTextFolder(others));
  if (texts.train.size() > 0)
    return Error(
        Diag::kData,
        "`{}` has token files (`{}`) and text (`{}`); all files of a folder must be of one "
        "kind: move one kind away, or name one file instead",
        folder, token_files[0], texts.train.segments()[0].name);
  HEDDLE_TRY(TokenSource source, OpenTokenFolder(token_files));
  source.skipped = texts.skipped;
  return source;
}

}  // namespace

void SetDocuments(std::vector<int64_t> ends, TokenSegment& segment) {
  segment.document_last = [ends = std::move(ends)](int64_t token) {
    auto end = std::ranges::upper_bound(ends, token);
    return end == ends.end() ? INT64_MAX : *end - 1;
  };
}

Result<TokenSource> OpenSource(const std::string& name) {
  TokenSource source;
  if (name == "text") {
    source.kind = "text, the project's own";
    source.is_text = true;
    source.train.Add(Corpus());
    return source;
  }
  if (IsDirectory(name)) return OpenFolder(name);
  // Megatron-LM's flags name its pairs of files without their extensions.
  if (IsTokenFile(name) || (!IsFile(name) && IsFile(name + ".idx"))) {
    HEDDLE_TRY(TokenFile file, OpenTokenFile(IsTokenFile(name) ? name : name + ".idx"));
    source.kind = file.kind;
    source.train.Add(std::move(file.segment));
    return source;
  }
  HEDDLE_RETURN_IF_ERROR(CheckNotParquet(name));
  HEDDLE_TRY(TokenSegment text, OpenText(name));
  source.kind = "text";
  source.is_text = true;
  source.train.Add(std::move(text));
  return source;
}

}  // namespace heddle::run
