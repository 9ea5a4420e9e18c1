#include "heddle/run/data/token_writer.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "heddle/core/base/file.h"
#include "heddle/run/checkpoint/disk.h"

namespace heddle::run {
namespace {

// Codes of token types in Megatron-LM's index.
constexpr uint8_t kInt32Code = 4;
constexpr uint8_t kUint16Code = 8;

template <typename T>
void AppendRaw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

bool HasFiles(const std::string& folder) {
  DIR* stream = ::opendir(folder.c_str());
  if (stream == nullptr) return errno != ENOENT;
  bool found = false;
  while (const dirent* entry = ::readdir(stream)) {
    std::string_view name = entry->d_name;
    found = found || (name != "." && name != "..");
  }
  ::closedir(stream);
  return found;
}

}  // namespace

Result<TokenWriter> TokenWriter::Create(const std::string& folder, int64_t vocab) {
  TokenWriter writer;
  writer.folder_ = folder;
  while (writer.folder_.size() > 1 && writer.folder_.ends_with('/')) writer.folder_.pop_back();
  if (HasFiles(writer.folder_))
    return Error(Diag::kFileWrite, "`{}` exists and is not an empty folder; name another folder",
                 folder);
  writer.partial_ = writer.folder_ + ".partial";
  writer.narrow_ = vocab <= 65536;
  HEDDLE_RETURN_IF_ERROR(MakeDirectories(writer.partial_));
  std::string path = writer.partial_ + "/train.bin";
  writer.bin_ = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
  if (writer.bin_ < 0) return SystemError(Diag::kFileWrite, path, "write");
  if (::flock(writer.bin_, LOCK_EX | LOCK_NB) != 0)
    return Error(Diag::kFileWrite, "another `heddle tokenize` writes `{}`", writer.partial_);
  if (::ftruncate(writer.bin_, 0) != 0) return SystemError(Diag::kFileWrite, path, "write");
  return writer;
}

TokenWriter::TokenWriter(TokenWriter&& other) noexcept
    : folder_(std::move(other.folder_)),
      partial_(std::move(other.partial_)),
      bin_(std::exchange(other.bin_, -1)),
      narrow_(other.narrow_),
      tokens_(other.tokens_),
      lengths_(std::move(other.lengths_)) {}

TokenWriter::~TokenWriter() {
  if (bin_ < 0) return;
  // Not finished: a later run would truncate them anyway.
  ::unlink((partial_ + "/train.bin").c_str());
  ::rmdir(partial_.c_str());
  ::close(bin_);
}

Status TokenWriter::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t written = ::write(bin_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError(Diag::kFileWrite, partial_ + "/train.bin", "write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return Done{};
}

Status TokenWriter::Add(std::span<const int32_t> tokens, std::span<const uint32_t> lengths) {
  tokens_ += static_cast<int64_t>(tokens.size());
  lengths_.insert(lengths_.end(), lengths.begin(), lengths.end());
  if (!narrow_) return Write({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
  buffer_.clear();
  for (int32_t token : tokens) AppendRaw(buffer_, static_cast<uint16_t>(token));
  return Write(buffer_);
}

Status TokenWriter::WriteIndex() const {
  auto count = static_cast<uint64_t>(lengths_.size());
  std::string index("MMIDIDX\0\0", 9);
  AppendRaw(index, uint64_t{1});
  AppendRaw(index, narrow_ ? kUint16Code : kInt32Code);
  AppendRaw(index, count);
  AppendRaw(index, count + 1);
  for (uint32_t length : lengths_) AppendRaw(index, length);
  int64_t begin = 0;
  for (uint32_t length : lengths_) {
    AppendRaw(index, begin);
    begin += int64_t{length} * (narrow_ ? 2 : 4);
  }
  for (uint64_t i = 0; i <= count; ++i) AppendRaw(index, i);
  return WriteFile(partial_ + "/train.idx", index);
}

Status TokenWriter::Finish() {
  std::string path = partial_ + "/train.bin";
  if (::fsync(bin_) != 0 || ::close(std::exchange(bin_, -1)) != 0)
    return SystemError(Diag::kFileWrite, path, "write");
  HEDDLE_RETURN_IF_ERROR(WriteIndex());
  HEDDLE_RETURN_IF_ERROR(SyncFolder(partial_));
  // Replaces an empty folder.
  if (std::rename(partial_.c_str(), folder_.c_str()) != 0)
    return SystemError(Diag::kFileWrite, folder_, "create");
  return Done{};
}

}  // namespace heddle::run
