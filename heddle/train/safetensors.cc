#include "heddle/train/safetensors.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_set>

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "heddle/aten/dtype.h"
#include "heddle/base/text.h"
#include "heddle/train/misfits.h"
#include "heddle/train/safetensors_header.h"

namespace heddle {
namespace {

// As safetensors itself has it.
constexpr int64_t kMaxHeader = 100'000'000;

Failure FileError(const std::string& path, std::string_view what) {
  Failure failure = Error(Diag::kFileRead, "{}", what);
  failure.diagnostics[0].file = path;
  return failure;
}

Status ReadAt(const std::string& path, int file, int64_t offset, void* data, int64_t size) {
  auto* to = static_cast<char*>(data);
  while (size > 0) {
    ssize_t got = ::pread(file, to, static_cast<size_t>(size), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(path, fmt::format("cannot read: {}", std::strerror(errno)));
    if (got == 0)
      return FileError(path, fmt::format("ends at byte {}, {} bytes too early", offset, size));
    to += got;
    offset += got;
    size -= got;
  }
  return Done{};
}

Result<std::string> ReadHeader(const std::string& path, int file, int64_t size) {
  if (size < 8)
    return FileError(path, fmt::format("is {} bytes long; a safetensors file begins with 8 bytes "
                                       "for the length of its header",
                                       size));
  unsigned char bytes[8];
  HEDDLE_RETURN_IF_ERROR(ReadAt(path, file, 0, bytes, 8));
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | bytes[i];
  if (length > static_cast<uint64_t>(size - 8))
    return FileError(
        path, fmt::format("says that its header has {} bytes, and has {} behind byte 8", length,
                          size - 8));
  if (length > static_cast<uint64_t>(kMaxHeader))
    return FileError(path,
                     fmt::format("has a header of {} bytes; the most is {}", length, kMaxHeader));
  std::string header(length, '\0');
  HEDDLE_RETURN_IF_ERROR(ReadAt(path, file, 8, header.data(), static_cast<int64_t>(length)));
  return header;
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return FileError(path, fmt::format("cannot open: {}", std::strerror(errno)));
  SafetensorsFile result;
  result.path_ = path;
  result.file_ = std::shared_ptr<const int>(new int(file), [](const int* number) {
    ::close(*number);
    delete number;
  });
  struct stat status {};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
    return FileError(path, "is no regular file");
  HEDDLE_TRY(std::string header, ReadHeader(path, file, status.st_size));
  result.data_begin_ = 8 + static_cast<int64_t>(header.size());
  Result<std::vector<Entry>> entries =
      ParseSafetensorsHeader(header, status.st_size - result.data_begin_);
  if (!entries.ok()) {
    for (Diagnostic& diagnostic : entries.diagnostics()) diagnostic.file = path;
    return std::move(entries).failure();
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

Result<at::Tensor> SafetensorsFile::Read(const Entry& entry) const {
  at::Tensor tensor = at::empty(entry.shape, entry.type);
  HEDDLE_RETURN_IF_ERROR(ReadAt(path_, *file_, data_begin_ + entry.begin, tensor.data_ptr(),
                                static_cast<int64_t>(tensor.nbytes())));
  return tensor;
}

Result<std::string> FormatSafetensors(
    const std::vector<std::pair<std::string, at::Tensor>>& tensors,
    const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  size_t size = 0;
  for (const auto& [name, tensor] : tensors) {
    std::optional<std::string_view> type = SafetensorsTypeName(tensor.scalar_type());
    if (!type)
      return Error(Diag::kFileWrite, "`{}` is {}, which safetensors files cannot hold", name,
                   c10::toString(tensor.scalar_type()));
    if (header.contains(name))
      return Error(Diag::kFileWrite, "two tensors of one file are called `{}`", name);
    header[name] = {{"dtype", *type},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {size, size + tensor.nbytes()}}};
    size += tensor.nbytes();
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  // So that tensors of any type begin at a multiple of their size.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string content;
  content.reserve(8 + text.size() + size);
  for (int i = 0; i < 8; ++i) content += static_cast<char>(text.size() >> (8 * i) & 255);
  content += text;
  for (const auto& [name, tensor] : tensors) {
    at::Tensor plain = tensor.cpu().contiguous();
    content.append(static_cast<const char*>(plain.data_ptr()), plain.nbytes());
  }
  return content;
}

Result<ParamSource> ParamsFromFile(const Model& model, const std::string& path) {
  HEDDLE_TRY(SafetensorsFile file, SafetensorsFile::Open(path));
  at::ScalarType master = model.numerics.compute == DType::kF64 ? at::kDouble : at::kFloat;
  Misfits misfits(path);
  std::unordered_set<std::string_view> names;
  for (const ParamSpec& param : model.params) {
    names.insert(param.name);
    misfits.Check(param.name, file.Find(param.name), param.shape, master);
  }
  for (const SafetensorsFile::Entry& entry : file.entries()) {
    if (!names.contains(entry.name))
      misfits.Add(fmt::format("has `{}`, which the model has not", entry.name));
  }
  if (!misfits.empty()) return misfits.Take();
  return ParamSource([&model, file = std::move(file), master](size_t param) -> Result<at::Tensor> {
    HEDDLE_TRY(at::Tensor tensor, file.Read(*file.Find(model.params[param].name)));
    return tensor.to(master);
  });
}

}  // namespace heddle
