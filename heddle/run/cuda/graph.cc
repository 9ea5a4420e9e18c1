#include "heddle/run/cuda/graph.h"

namespace heddle::run {
namespace {

// CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: other threads may wait for the device meanwhile.
constexpr int kThreadLocal = 1;

}  // namespace

Status CudaGraph::Launch(CudaStreamHandle* stream) const {
  const CudaDriver& driver = *exec_.get_deleter().driver;
  return driver.Check(driver.graph_launch(exec_.get(), stream), "cuGraphLaunch");
}

Result<CudaCapture> CudaCapture::Begin(const CudaDriver& driver, CudaStreamHandle* stream) {
  HEDDLE_RETURN_IF_ERROR(
      driver.Check(driver.stream_begin_capture(stream, kThreadLocal), "cuStreamBeginCapture"));
  return CudaCapture(driver, stream);
}

CudaCapture::~CudaCapture() {
  if (stream_ == nullptr) return;
  CudaGraphHandle* graph = nullptr;
  driver_->stream_end_capture(stream_, &graph);
  if (graph != nullptr) driver_->graph_destroy(graph);
}

Result<CudaGraph> CudaCapture::End() {
  CudaGraphHandle* graph = nullptr;
  CudaResult ended = driver_->stream_end_capture(stream_, &graph);
  stream_ = nullptr;
  HEDDLE_RETURN_IF_ERROR(driver_->Check(ended, "cuStreamEndCapture"));
  size_t nodes = 0;
  CudaGraphExecHandle* exec = nullptr;
  Status made = driver_->Check(driver_->graph_nodes(graph, nullptr, &nodes), "cuGraphGetNodes");
  if (made.ok())
    made = driver_->Check(driver_->graph_instantiate(&exec, graph, 0), "cuGraphInstantiate");
  driver_->graph_destroy(graph);
  HEDDLE_RETURN_IF_ERROR(std::move(made));
  return CudaGraph(*driver_, exec, nodes);
}

}  // namespace heddle::run
