// CudaGraph: launches of a stream, recorded once and replayed by one call.
#pragma once

#include <memory>

#include "heddle/run/cuda/driver.h"
#include "heddle/run/cuda/module.h"

namespace heddle::run {

class CudaGraph {
 public:
  // Replays the recorded work on a stream. Allocates nothing.
  Status Launch(CudaStreamHandle* stream) const;
  // Number of kernels, copies and fills.
  size_t node_count() const { return node_count_; }

 private:
  friend class CudaCapture;
  struct Destroy {
    const CudaDriver* driver;
    void operator()(CudaGraphExecHandle* exec) const { driver->graph_exec_destroy(exec); }
  };

  CudaGraph(const CudaDriver& driver, CudaGraphExecHandle* exec, size_t node_count)
      : exec_(exec, Destroy{&driver}), node_count_(node_count) {}

  std::unique_ptr<CudaGraphExecHandle, Destroy> exec_;
  size_t node_count_;
};

// A capture of a stream. Between Begin and End, launches on the stream are recorded and do not run;
// calls that wait for the device fail. Other threads are not affected.
class CudaCapture {
 public:
  static Result<CudaCapture> Begin(const CudaDriver& driver, CudaStreamHandle* stream);
  // Ends a capture that was not ended, and drops its recording.
  ~CudaCapture();
  CudaCapture(CudaCapture&& other) noexcept : driver_(other.driver_), stream_(other.stream_) {
    other.stream_ = nullptr;
  }
  CudaCapture& operator=(CudaCapture&&) = delete;

  // Ends the capture. Fails if a call during the capture was not allowed. Replaces small memsets by
  // launches of `fill`, a kernel with parameters (to, value, words of 4 bytes), if given: a GPU
  // waits several microseconds around a memset node, and less around a kernel.
  Result<CudaGraph> End(const CudaKernel* fill = nullptr);

 private:
  CudaCapture(const CudaDriver& driver, CudaStreamHandle* stream)
      : driver_(&driver), stream_(stream) {}

  const CudaDriver* driver_;
  // Null when the capture has ended.
  CudaStreamHandle* stream_;
};

}  // namespace heddle::run
