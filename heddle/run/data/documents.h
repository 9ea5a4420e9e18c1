// Documents of text: text files are one each, JSONL files have one in each line.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/mapped_file.h"

namespace heddle::run {

// A text file, or some lines of a JSONL file.
struct DocumentPart {
  std::shared_ptr<const MappedFile> file;
  size_t begin = 0;
  size_t end = 0;
  bool is_jsonl = false;
};

struct DocumentFiles {
  std::vector<DocumentPart> parts;
  int64_t files = 0;
  // Files of folders that are not UTF-8.
  int64_t skipped = 0;
  int64_t bytes = 0;
};

// Lists the documents of text files, JSONL files (`.jsonl`) and folders of them, in the order of
// `paths` and, in a folder, of names. Fails for a named file that is not text.
Result<DocumentFiles> ListDocuments(const std::vector<std::string>& paths);

// Calls `visit` with each document of a part. In JSONL, a document is the text at `key` of a line;
// an error names file and line.
Status ForEachDocument(const DocumentPart& part, const std::string& key,
                       const std::function<Status(std::string_view)>& visit);

}  // namespace heddle::run
