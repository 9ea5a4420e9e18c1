#include "heddle/run/cuda/graph.h"

#include <optional>
#include <vector>

namespace heddle::run {
namespace {

// CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: other threads may wait for the device meanwhile.
constexpr int kThreadLocal = 1;
// CU_GRAPH_NODE_TYPE_MEMSET.
constexpr int kMemsetNode = 2;
// Filling larger memory takes longer than the wait around a memset node.
constexpr size_t kMostFilled = 1 << 20;
constexpr unsigned kFillThreads = 256;

class FillReplacer {
 public:
  FillReplacer(const CudaDriver& driver, CudaGraphHandle* graph, const CudaKernel& fill)
      : driver_(driver), graph_(graph), fill_(fill) {}

  // Leaves a node that cannot be replaced.
  void ReplaceAll() const {
    size_t count = 0;
    if (driver_.graph_nodes(graph_, nullptr, &count) != 0) return;
    std::vector<void*> nodes(count);
    if (driver_.graph_nodes(graph_, nodes.data(), &count) != 0) return;
    for (void* node : nodes) {
      int type = 0;
      if (driver_.graph_node_type(node, &type) == 0 && type == kMemsetNode) Replace(node);
    }
  }

 private:
  using List = CudaResult (*CudaDriver::*)(void* node, void** nodes, size_t* count);

  std::optional<std::vector<void*>> Neighbours(List list, void* node) const {
    size_t count = 0;
    if ((driver_.*list)(node, nullptr, &count) != 0) return std::nullopt;
    std::vector<void*> nodes(count);
    if (count > 0 && (driver_.*list)(node, nodes.data(), &count) != 0) return std::nullopt;
    return nodes;
  }

  void Replace(void* node) const {
    CudaMemset memset{};
    if (driver_.graph_memset(node, &memset) != 0 || memset.height != 1) return;
    size_t bytes = memset.width * memset.element_bytes;
    if (bytes == 0 || bytes > kMostFilled || bytes % 4 != 0 || memset.to % 4 != 0) return;
    unsigned value = memset.value;
    if (memset.element_bytes == 1) value = (value & 0xFF) * 0x01010101u;
    if (memset.element_bytes == 2) value = (value & 0xFFFF) * 0x00010001u;
    std::optional<std::vector<void*>> before = Neighbours(&CudaDriver::graph_before, node);
    std::optional<std::vector<void*>> after = Neighbours(&CudaDriver::graph_after, node);
    if (!before || !after) return;
    uint64_t words = bytes / 4;
    void* arguments[] = {&memset.to, &value, &words};
    auto blocks = static_cast<unsigned>((words + kFillThreads - 1) / kFillThreads);
    CudaKernelNode kernel{fill_.function(), {blocks, 1, 1}, {kFillThreads, 1, 1}, 0,
                          arguments,        nullptr};
    void* added = nullptr;
    if (driver_.graph_add_kernel(&added, graph_, before->data(), before->size(), &kernel) != 0)
      return;
    std::vector<void*> from(after->size(), added);
    bool joined = after->empty() ||
                  driver_.graph_add_edges(graph_, from.data(), after->data(), after->size()) == 0;
    driver_.graph_remove(joined ? node : added);
  }

  const CudaDriver& driver_;
  CudaGraphHandle* graph_;
  const CudaKernel& fill_;
};

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

Result<CudaGraph> CudaCapture::End(const CudaKernel* fill) {
  CudaGraphHandle* graph = nullptr;
  CudaResult ended = driver_->stream_end_capture(stream_, &graph);
  stream_ = nullptr;
  HEDDLE_RETURN_IF_ERROR(driver_->Check(ended, "cuStreamEndCapture"));
  if (fill != nullptr) FillReplacer(*driver_, graph, *fill).ReplaceAll();
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
