#include "heddle/run/data/token_writer.h"

#include <algorithm>
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
#include "heddle/run/checkpoint/safetensors.h"

namespace heddle::run {
namespace {

// Codes of token types in Megatron-LM's index.
constexpr uint8_t kInt32Code = 4;
constexpr uint8_t kUint16Code = 8;

// Bytes before the tokens in a file with a mask: the header, padded with spaces.
constexpr size_t kHeaderBytes = 512;

template <typename T>
std::string_view RawBytes(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

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

Result<TokenWriter> TokenWriter::Create(const std::string& folder, int64_t vocab, bool masked) {
  TokenWriter writer;
  writer.folder_ = folder;
  while (writer.folder_.size() > 1 && writer.folder_.ends_with('/')) writer.folder_.pop_back();
  if (HasFiles(writer.folder_))
    return Error(Diag::kFileWrite, "`{}` exists and is not an empty folder; name another folder",
                 folder);
  writer.partial_ = writer.folder_ + ".partial";
  // Safetensors files have no type for tokens of 16 bits.
  writer.narrow_ = vocab <= 65536 && !masked;
  writer.masked_ = masked;
  HEDDLE_RETURN_IF_ERROR(MakeDirectories(writer.partial_));
  const std::string& path = writer.path_ =
      writer.partial_ + (masked ? "/train.safetensors" : "/train.bin");
  writer.bin_ = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
  if (writer.bin_ < 0) return SystemError(Diag::kFileWrite, path, "write");
  if (::flock(writer.bin_, LOCK_EX | LOCK_NB) != 0)
    return Error(Diag::kFileWrite, "another `heddle tokenize` writes `{}`", writer.partial_);
  if (::ftruncate(writer.bin_, 0) != 0) return SystemError(Diag::kFileWrite, path, "write");
  if (masked) HEDDLE_RETURN_IF_ERROR(writer.Write(std::string(kHeaderBytes, ' ')));
  return writer;
}

TokenWriter::TokenWriter(TokenWriter&& other) noexcept
    : folder_(std::move(other.folder_)),
      partial_(std::move(other.partial_)),
      path_(std::move(other.path_)),
      bin_(std::exchange(other.bin_, -1)),
      narrow_(other.narrow_),
      masked_(other.masked_),
      tokens_(other.tokens_),
      lengths_(std::move(other.lengths_)),
      mask_(std::move(other.mask_)) {}

TokenWriter::~TokenWriter() {
  if (bin_ < 0) return;
  // Not finished: a later run would truncate them anyway.
  ::unlink(path_.c_str());
  ::rmdir(partial_.c_str());
  ::close(bin_);
}

Status TokenWriter::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t written = ::write(bin_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError(Diag::kFileWrite, path_, "write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return Done{};
}

int64_t TokenWriter::counted() const { return masked_ ? std::ranges::count(mask_, 1) : tokens_; }

Status TokenWriter::Add(std::span<const int32_t> tokens, std::span<const uint32_t> lengths,
                        std::span<const uint8_t> mask) {
  HEDDLE_CHECK(mask.size() == (masked_ ? tokens.size() : 0), "a mask has one value for each token");
  tokens_ += static_cast<int64_t>(tokens.size());
  lengths_.insert(lengths_.end(), lengths.begin(), lengths.end());
  mask_.insert(mask_.end(), mask.begin(), mask.end());
  if (!narrow_) return Write(RawBytes(tokens));
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

Status TokenWriter::FinishMasked() {
  HEDDLE_RETURN_IF_ERROR(Write(RawBytes(std::span<const uint32_t>(lengths_))));
  HEDDLE_RETURN_IF_ERROR(Write(RawBytes(std::span<const uint8_t>(mask_))));
  const TensorInfo tensors[] = {{"tokens", DType::kI32, {tokens_}},
                                {"document_lengths", DType::kI32, {documents()}},
                                {"loss_mask", DType::kU8, {tokens_}}};
  HEDDLE_TRY(std::string header, FormatSafetensorsHeader(tensors));
  std::string padded;
  AppendRaw(padded, uint64_t{kHeaderBytes - sizeof(uint64_t)});
  padded.append(header, sizeof(uint64_t));
  padded.resize(kHeaderBytes, ' ');
  if (::lseek(bin_, 0, SEEK_SET) != 0) return SystemError(Diag::kFileWrite, path_, "write");
  return Write(padded);
}

Status TokenWriter::Finish() {
  if (masked_) HEDDLE_RETURN_IF_ERROR(FinishMasked());
  if (::fsync(bin_) != 0 || ::close(std::exchange(bin_, -1)) != 0)
    return SystemError(Diag::kFileWrite, path_, "write");
  if (!masked_) HEDDLE_RETURN_IF_ERROR(WriteIndex());
  HEDDLE_RETURN_IF_ERROR(SyncFolder(partial_));
  // Replaces an empty folder.
  if (std::rename(partial_.c_str(), folder_.c_str()) != 0)
    return SystemError(Diag::kFileWrite, folder_, "create");
  return Done{};
}

}  // namespace heddle::run
