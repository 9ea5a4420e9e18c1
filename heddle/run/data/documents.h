// Documents of text: text files are one each, JSONL files have one in each line. The lines of a
// file have texts, or pairs of a prompt and its completion.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/mapped_file.h"

namespace heddle::run {

// The names of texts in a line of JSONL.
struct DocumentKeys {
  std::string text = "text";
  std::string prompt = "prompt";
  std::string completion = "completion";
};

struct Document {
  // A pair's prompt, followed by its completion.
  std::string_view text;
  // The bytes of the prompt; nullopt if the document is not a pair.
  std::optional<size_t> prompt = {};
};

// A text file, or some lines of a JSONL file or of standard input.
struct DocumentPart {
  // Null for standard input.
  std::shared_ptr<const MappedFile> file;
  size_t begin = 0;
  size_t end = 0;
  bool is_jsonl = false;
  // The lines are pairs.
  bool has_pairs = false;
  // Lines of standard input, and the number of lines before them.
  std::string lines = {};
  int64_t lines_before = 0;

  size_t size() const { return end - begin; }
  std::string_view text() const { return file ? file->bytes().substr(begin, size()) : lines; }
};

// Returns the next part, or nullopt after the last one.
using DocumentSource = std::function<Result<std::optional<DocumentPart>>()>;

struct DocumentFiles {
  std::vector<DocumentPart> parts;
  int64_t files = 0;
  // Files of folders that are not UTF-8.
  int64_t skipped = 0;
  int64_t bytes = 0;
  // Some part has pairs.
  bool has_pairs = false;
};

// Lists the documents of text files, JSONL files (`.jsonl`) and folders of them, in the order of
// `paths` and, in a folder, of names. A JSONL file has pairs if its first line has a completion.
// Fails for a named file that is not text.
Result<DocumentFiles> ListDocuments(const std::vector<std::string>& paths,
                                    const DocumentKeys& keys = {});

// Returns the parts of `documents`, which must outlive the result.
DocumentSource PartsOf(const DocumentFiles& documents);
// Reads JSONL from standard input, one part at a time. Its lines have texts, not pairs.
DocumentSource StandardInputParts();

// Calls `visit` with each document of a part. An error in a line of JSONL names file and line.
Status ForEachDocument(const DocumentPart& part, const DocumentKeys& keys,
                       const std::function<Status(const Document&)>& visit);

}  // namespace heddle::run
