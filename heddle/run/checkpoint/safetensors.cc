#include "heddle/run/checkpoint/safetensors.h"

#include <unordered_set>

#include <unistd.h>
#include <nlohmann/json.hpp>

#include "heddle/core/base/file.h"
#include "heddle/run/checkpoint/disk.h"
#include "heddle/run/checkpoint/safetensors_header.h"

namespace heddle::run {
namespace {

// The limit of the safetensors library.
constexpr int64_t kMaxHeader = 100'000'000;

Failure ReadError(const std::string& path, std::string_view what) {
  return FileError(Diag::kFileRead, path, what);
}

Result<std::string> ReadHeader(const std::string& path, int file, int64_t size) {
  if (size < 8)
    return ReadError(path, fmt::format("has {} bytes; a safetensors file begins with 8 bytes "
                                       "for the length of its header",
                                       size));
  unsigned char bytes[8];
  HEDDLE_RETURN_IF_ERROR(ReadAt(path, file, 0, bytes, 8));
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | bytes[i];
  if (length > static_cast<uint64_t>(size - 8))
    return ReadError(path, fmt::format("specifies a header of {} bytes, but has {} after byte 8",
                                       length, size - 8));
  if (length > static_cast<uint64_t>(kMaxHeader))
    return ReadError(
        path, fmt::format("has a header of {} bytes; the maximum is {}", length, kMaxHeader));
  std::string header(length, '\0');
  HEDDLE_RETURN_IF_ERROR(ReadAt(path, file, 8, header.data(), static_cast<int64_t>(length)));
  return header;
}

// Returns `"name"`, escaped.
Result<std::string> JsonText(const std::string& name) {
  try {
    return nlohmann::json(name).dump();
  } catch (const nlohmann::json::exception&) {
    return Error(Diag::kFileWrite, "the name of a tensor is not UTF-8");
  }
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  InputFile opened = OpenInput(path);
  int file = opened.fd;
  if (file < 0) return ReadError(path, fmt::format("cannot open: {}", opened.problem));
  SafetensorsFile result;
  result.path_ = path;
  result.file_ = std::shared_ptr<const int>(new int(file), [](const int* number) {
    ::close(*number);
    delete number;
  });
  HEDDLE_TRY(std::string header, ReadHeader(path, file, opened.bytes));
  result.data_begin_ = 8 + static_cast<int64_t>(header.size());
  Result<std::vector<Entry>> entries =
      ParseSafetensorsHeader(header, opened.bytes - result.data_begin_);
  if (!entries.ok()) {
    Failure failure = std::move(entries).failure();
    for (Diagnostic& d : failure.diagnostics) d.file = d.line > 0 ? path + " (header)" : path;
    return failure;
  }
  result.entries_ = *std::move(entries);
  for (size_t i = 0; i < result.entries_.size(); ++i)
    result.by_name_.emplace(result.entries_[i].name, i);
  return result;
}

const SafetensorsFile::Entry* SafetensorsFile::Find(const std::string& name) const {
  auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &entries_[at->second];
}

Status SafetensorsFile::ReadBytes(int64_t begin, int64_t size, void* to) const {
  return ReadAt(path_, *file_, data_begin_ + begin, to, size);
}

Result<std::string> FormatSafetensorsHeader(std::span<const TensorInfo> tensors,
                                            const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    std::string said;
    for (const auto& [key, value] : metadata) {
      HEDDLE_TRY(std::string key_text, JsonText(key));
      HEDDLE_TRY(std::string value_text, JsonText(value));
      said += fmt::format("{}{}:{}", said.empty() ? "" : ",", key_text, value_text);
    }
    text += fmt::format("\"__metadata__\":{{{}}}", said);
  }
  std::unordered_set<std::string_view> names;
  int64_t begin = 0;
  for (const TensorInfo& tensor : tensors) {
    std::optional<std::string_view> type = SafetensorsTypeName(tensor.dtype);
    if (!type)
      return Error(Diag::kFileWrite, "`{}` is {}, which the safetensors format does not support",
                   tensor.name, Name(tensor.dtype));
    if (!names.insert(tensor.name).second)
      return Error(Diag::kFileWrite, "two tensors have the name `{}`", tensor.name);
    HEDDLE_TRY(std::string name, JsonText(tensor.name));
    int64_t end = begin + BytesOf(tensor.dtype, tensor.shape);
    text +=
        fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                    text.size() > 1 ? "," : "", name, *type, FormatSizes(tensor.shape), begin, end);
    begin = end;
  }
  text += "}";
  // Pads the header, so that the data begins at a multiple of 8.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(text.size() >> (8 * i) & 255);
  return length + text;
}

}  // namespace heddle::run
