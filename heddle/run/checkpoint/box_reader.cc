#include "heddle/run/checkpoint/box_reader.h"

#include <cstring>
#include <memory>

#include "heddle/run/checkpoint/disk.h"

namespace heddle::run {
namespace {

// Runs of at least kLongRun bytes are read directly to their destination. Shorter runs are read in
// windows, together with the gaps between them.
constexpr int64_t kLongRun = 64 << 10;
constexpr int64_t kWindow = 1 << 20;

// A buffered window of a file.
class WindowReader {
 public:
  WindowReader(const std::string& path, int fd, int64_t end) : path_(path), fd_(fd), end_(end) {}

  // Copies `size` bytes at `offset`. Offsets must increase from call to call. `ahead` tells whether
  // to read the bytes that follow into the window, too.
  Status Copy(int64_t offset, int64_t size, bool ahead, char* to) {
    if (size >= kLongRun) return ReadAt(path_, fd_, offset, to, size);
    if (offset < begin_ || offset + size > begin_ + size_) {
      if (buffer_ == nullptr) buffer_ = std::make_unique_for_overwrite<char[]>(kWindow);
      begin_ = offset;
      size_ = ahead ? std::min(kWindow, end_ - offset) : size;
      HEDDLE_RETURN_IF_ERROR(ReadAt(path_, fd_, begin_, buffer_.get(), size_));
    }
    std::memcpy(to, buffer_.get() + (offset - begin_), static_cast<size_t>(size));
    return Done{};
  }

 private:
  const std::string& path_;
  int fd_;
  int64_t end_;
  std::unique_ptr<char[]> buffer_;
  int64_t begin_ = 0;
  int64_t size_ = 0;
};

// Returns the bytes from the first element of the box at `base` to the element at `offset`.
int64_t Distance(const Sizes& offset, const Slice& base, int64_t item) {
  int64_t distance = 0;
  for (size_t d = 0; d < offset.size(); ++d)
    distance = distance * base.shape[d] + (offset[d] - base.offset[d]);
  return distance * item;
}

}  // namespace

Status ReadBox(const BoxRead& read, char* to) {
  // The dimensions from `outer` on form one run: all but the first of them are whole on both sides.
  size_t outer = read.common.shape.size();
  int64_t run = read.item;
  int64_t stride = read.item;
  while (outer > 0) {
    --outer;
    run *= read.common.shape[outer];
    stride *= read.piece.shape[outer];
    if (read.common.shape[outer] != read.piece.shape[outer] ||
        read.common.shape[outer] != read.slice.shape[outer])
      break;
  }
  bool ahead = stride <= kLongRun || stride <= 16 * run;
  HEDDLE_TRY(OpenFile file, OpenFile::ForReading(read.path));
  Sizes last = read.common.offset;
  for (size_t d = 0; d < last.size(); ++d) last[d] += read.common.shape[d] - 1;
  WindowReader reader(read.path, file.fd(),
                      read.begin + Distance(last, read.piece, read.item) + read.item);
  Sizes at = read.common.offset;
  for (;;) {
    HEDDLE_RETURN_IF_ERROR(reader.Copy(read.begin + Distance(at, read.piece, read.item), run, ahead,
                                       to + Distance(at, read.slice, read.item)));
    size_t d = outer;
    while (d > 0 && at[d - 1] == last[d - 1]) {
      --d;
      at[d] = read.common.offset[d];
    }
    if (d == 0) return Done{};
    ++at[d - 1];
  }
}

}  // namespace heddle::run
