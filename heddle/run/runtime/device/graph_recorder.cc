#include "heddle/run/runtime/device/graph_recorder.h"

#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "heddle/run/cuda/graph.h"
#include "heddle/run/runtime/device/kernel_device.h"
#include "heddle/run/runtime/device/memory_pool.h"

namespace heddle::run {
namespace {

class GraphRecorder;

class RecordedGraph : public RecordedRun {
 public:
  RecordedGraph(GraphRecorder& recorder, CudaGraph graph, std::vector<Tensors> outputs)
      : recorder_(recorder), graph_(std::move(graph)), outputs_(std::move(outputs)) {}

  Status Replay() override;
  const std::vector<Tensors>& outputs() const override { return outputs_; }

 private:
  GraphRecorder& recorder_;
  CudaGraph graph_;
  std::vector<Tensors> outputs_;
};

class GraphRecorder : public RunRecorder {
 public:
  GraphRecorder(const CudaDriver& driver, c10::Device device, std::unique_ptr<MemoryPool> pool)
      : driver_(driver),
        device_(device),
        pool_(std::move(pool)),
        streams_(*c10::impl::getDeviceGuardImpl(device.type())),
        stream_(streams_.getStreamFromGlobalPool(device)),
        handle_(streams_.getStreamNativeHandle(stream_)),
        before_(device.type()),
        after_(device.type()) {
    // Without the kernel, memsets remain.
    Result<const Nvrtc*> nvrtc = Nvrtc::Open();
    Result<std::string> architecture = driver.Architecture(device.index());
    if (!nvrtc.ok() || !architecture.ok()) return;
    kernels_ = std::make_unique<KernelDevice>(driver, **nvrtc, *architecture, device);
    Result<std::vector<CudaKernel>> fill = kernels_->Compile(KernelText("fill"), {"fill"});
    if (fill.ok()) fill_ = std::move((*fill)[0]);
  }

  Result<std::vector<Tensors>> Run(const RankProgram& program,
                                   std::span<const Tensors> inputs_by_rank) override {
    OnStream on_stream(*this);
    InPool in_pool(*this, /*captured=*/false);
    return program.Run(inputs_by_rank);
  }

  Result<std::unique_ptr<RecordedRun>> Record(const RankProgram& program,
                                              std::span<const Tensors> inputs_by_rank) override {
    OnStream on_stream(*this);
    InPool in_pool(*this, /*captured=*/true);
    HEDDLE_TRY(CudaCapture capture, CudaCapture::Begin(driver_, stream()));
    HEDDLE_TRY(std::vector<Tensors> outputs, program.Run(inputs_by_rank));
    HEDDLE_TRY(CudaGraph graph, capture.End(fill_ ? &*fill_ : nullptr));
    return std::unique_ptr<RecordedRun>(
        std::make_unique<RecordedGraph>(*this, std::move(graph), std::move(outputs)));
  }

  // Makes the recorder's stream the current one, and orders its work after earlier launches and
  // before later ones.
  class OnStream {
   public:
    explicit OnStream(GraphRecorder& recorder)
        : recorder_(recorder), caller_(recorder.streams_.getStream(recorder.device_)) {
      recorder_.before_.record(caller_);
      recorder_.before_.block(recorder_.stream_);
      recorder_.streams_.exchangeStream(recorder_.stream_);
    }
    ~OnStream() {
      recorder_.after_.record(recorder_.stream_);
      recorder_.streams_.exchangeStream(caller_);
      recorder_.after_.block(caller_);
    }
    OnStream(const OnStream&) = delete;
    OnStream& operator=(const OnStream&) = delete;

   private:
    GraphRecorder& recorder_;
    c10::Stream caller_;
  };

  CudaStreamHandle* stream() const { return static_cast<CudaStreamHandle*>(handle_); }

 private:
  class InPool {
   public:
    InPool(GraphRecorder& recorder, bool captured) : pool_(*recorder.pool_), captured_(captured) {
      pool_.Begin(recorder.handle_, captured);
    }
    ~InPool() { pool_.End(captured_); }
    InPool(const InPool&) = delete;
    InPool& operator=(const InPool&) = delete;

   private:
    MemoryPool& pool_;
    bool captured_;
  };

  const CudaDriver& driver_;
  c10::Device device_;
  std::unique_ptr<MemoryPool> pool_;
  const c10::impl::DeviceGuardImplInterface& streams_;
  c10::Stream stream_;
  void* handle_;
  c10::Event before_;
  c10::Event after_;
  std::unique_ptr<KernelDevice> kernels_;
  std::optional<CudaKernel> fill_;
};

Status RecordedGraph::Replay() {
  GraphRecorder::OnStream on_stream(recorder_);
  return graph_.Launch(recorder_.stream());
}

}  // namespace

Result<std::unique_ptr<RunRecorder>> MakeGraphRecorder(c10::Device device) {
  HEDDLE_TRY(const CudaDriver* driver, CudaDriver::Open());
  HEDDLE_TRY(std::unique_ptr<MemoryPool> pool, MemoryPool::Make(device));
  return std::unique_ptr<RunRecorder>(
      std::make_unique<GraphRecorder>(*driver, device, std::move(pool)));
}

}  // namespace heddle::run
