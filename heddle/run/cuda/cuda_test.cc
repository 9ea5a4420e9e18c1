// Tests of the driver's calls, with a driver that records them, and of the kernel cache's files.
#include <algorithm>

#include <gtest/gtest.h>

#include "heddle/core/base/file.h"
#include "heddle/run/cuda/cubin_cache.h"
#include "heddle/run/cuda/graph.h"
#include "heddle/run/cuda/module.h"

namespace heddle::run {
namespace {

// The calls in order, and the call that fails.
std::vector<std::string> calls;
std::string failing;

CudaResult Called(const std::string& call) {
  calls.push_back(call);
  return call.starts_with(failing) && !failing.empty() ? 700 : 0;
}

template <typename Handle>
Handle* Fake(uintptr_t number) {
  return reinterpret_cast<Handle*>(number);
}

uintptr_t NumberOf(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }

CudaDriver RecordingDriver() {
  calls.clear();
  failing.clear();
  CudaDriver d;
  d.error_name = [](CudaResult, const char** name) {
    *name = "CUDA_ERROR_FAKE";
    return 0;
  };
  d.device_attribute = [](int* value, int attribute, int device) {
    *value = attribute == 75 ? (device == 0 ? 9 : 8) : 0;
    return 0;
  };
  d.stream_begin_capture = [](CudaStreamHandle* s, int mode) {
    return Called(fmt::format("begin {} mode {}", NumberOf(s), mode));
  };
  d.stream_end_capture = [](CudaStreamHandle* s, CudaGraphHandle** graph) {
    CudaResult result = Called(fmt::format("end {}", NumberOf(s)));
    *graph = result == 0 ? Fake<CudaGraphHandle>(50) : nullptr;
    return result;
  };
  d.graph_nodes = [](CudaGraphHandle*, void**, size_t* count) {
    *count = 3;
    return 0;
  };
  d.graph_instantiate = [](CudaGraphExecHandle** exec, CudaGraphHandle* graph, unsigned long long) {
    *exec = Fake<CudaGraphExecHandle>(60);
    return Called(fmt::format("instantiate {}", NumberOf(graph)));
  };
  d.graph_launch = [](CudaGraphExecHandle* exec, CudaStreamHandle* s) {
    return Called(fmt::format("launch {} on {}", NumberOf(exec), NumberOf(s)));
  };
  d.graph_destroy = [](CudaGraphHandle* graph) {
    return Called(fmt::format("destroy graph {}", NumberOf(graph)));
  };
  d.graph_exec_destroy = [](CudaGraphExecHandle* exec) {
    return Called(fmt::format("destroy exec {}", NumberOf(exec)));
  };
  d.module_load = [](CudaModuleHandle** module, const void* image) {
    *module = Fake<CudaModuleHandle>(70);
    return Called(fmt::format("load {}", static_cast<const char*>(image)));
  };
  d.module_unload = [](CudaModuleHandle* module) {
    return Called(fmt::format("unload {}", NumberOf(module)));
  };
  d.module_function = [](CudaFunctionHandle** function, CudaModuleHandle*, const char* name) {
    *function = Fake<CudaFunctionHandle>(80);
    return Called(fmt::format("function {}", name));
  };
  d.function_set = [](CudaFunctionHandle*, int attribute, int value) {
    return Called(fmt::format("attribute {} = {}", attribute, value));
  };
  d.launch = [](CudaFunctionHandle* function, unsigned x, unsigned, unsigned, unsigned block,
                unsigned, unsigned, unsigned shared, CudaStreamHandle* s, void** arguments,
                CudaLaunchExtra**) {
    return Called(fmt::format("kernel {} <<<{}, {}, {}>>> on {} with {}", NumberOf(function), x,
                              block, shared, NumberOf(s), *static_cast<int*>(arguments[0])));
  };
  return d;
}

TEST(CudaGraph, IsRecordedOnceAndReplayed) {
  CudaDriver driver = RecordingDriver();
  auto* stream = Fake<CudaStreamHandle>(7);
  {
    CudaCapture capture = *CudaCapture::Begin(driver, stream);
    CudaGraph graph = *capture.End();
    EXPECT_EQ(graph.node_count(), 3u);
    EXPECT_TRUE(graph.Launch(stream).ok());
    EXPECT_TRUE(graph.Launch(stream).ok());
  }
  std::vector<std::string> expected{"begin 7 mode 1",   "end 7",          "instantiate 50",
                                    "destroy graph 50", "launch 60 on 7", "launch 60 on 7",
                                    "destroy exec 60"};
  EXPECT_EQ(calls, expected);
}

// Nodes 1 and 3 are memsets, 2 is a kernel: 1 -> 2 -> 3.
CudaDriver DriverWithFills() {
  CudaDriver d = RecordingDriver();
  d.graph_nodes = [](CudaGraphHandle*, void** nodes, size_t* count) {
    *count = 3;
    for (uintptr_t i = 0; nodes != nullptr && i < 3; ++i) nodes[i] = Fake<void>(i + 1);
    return 0;
  };
  d.graph_node_type = [](void* node, int* type) {
    *type = NumberOf(node) == 2 ? 0 : 2;
    return 0;
  };
  d.graph_memset = [](void* node, CudaMemset* memset) {
    bool first = NumberOf(node) == 1;
    *memset = {4096, 0, first ? 0x12u : 0x345u, first ? 1u : 2u, first ? 2048u : 3u, 1};
    return 0;
  };
  d.graph_before = [](void* node, void** nodes, size_t* count) {
    *count = NumberOf(node) == 1 ? 0 : 1;
    if (nodes != nullptr) nodes[0] = Fake<void>(NumberOf(node) - 1);
    return 0;
  };
  d.graph_after = [](void* node, void** nodes, size_t* count) {
    *count = NumberOf(node) == 3 ? 0 : 1;
    if (nodes != nullptr) nodes[0] = Fake<void>(NumberOf(node) + 1);
    return 0;
  };
  d.graph_add_kernel = [](void** node, CudaGraphHandle*, void* const*, size_t count,
                          const CudaKernelNode* kernel) {
    *node = Fake<void>(90);
    return Called(fmt::format("add {} <<<{}, {}>>> to {} value {:x} words {} after {}",
                              NumberOf(kernel->function), kernel->grid[0], kernel->block[0],
                              *static_cast<uint64_t*>(kernel->arguments[0]),
                              *static_cast<unsigned*>(kernel->arguments[1]),
                              *static_cast<uint64_t*>(kernel->arguments[2]), count));
  };
  d.graph_add_edges = [](CudaGraphHandle*, void* const* from, void* const* to, size_t count) {
    return Called(fmt::format("edges {} {} -> {}", count, NumberOf(from[0]), NumberOf(to[0])));
  };
  d.graph_remove = [](void* node) { return Called(fmt::format("remove {}", NumberOf(node))); };
  return d;
}

// The second memset has 6 bytes, not a multiple of 4, so it stays.
TEST(CudaGraph, FillsSmallMemoryWithAKernel) {
  CudaDriver driver = DriverWithFills();
  CudaModule module = *CudaModule::Load(driver, "code");
  CudaKernel fill = *module.Kernel("fill");
  for (bool fails : {false, true}) {
    calls.clear();
    failing = fails ? "edges" : "";
    CudaCapture capture = *CudaCapture::Begin(driver, Fake<CudaStreamHandle>(7));
    EXPECT_TRUE(capture.End(&fill).ok());
    std::vector<std::string> expected{
        "begin 7 mode 1", "end 7", "add 80 <<<2, 256>>> to 4096 value 12121212 words 512 after 0",
        "edges 1 90 -> 2",
        // If edges cannot be added, the new node is removed.
        fails ? "remove 90" : "remove 1", "instantiate 50", "destroy graph 50", "destroy exec 60"};
    EXPECT_EQ(calls, expected);
  }
}

TEST(CudaGraph, ACaptureThatIsLeftIsEnded) {
  CudaDriver driver = RecordingDriver();
  { CudaCapture capture = *CudaCapture::Begin(driver, Fake<CudaStreamHandle>(7)); }
  std::vector<std::string> expected{"begin 7 mode 1", "end 7", "destroy graph 50"};
  EXPECT_EQ(calls, expected);
}

TEST(CudaGraph, SaysWhichCallFailed) {
  for (auto [call, said] : {std::pair("begin", "cuStreamBeginCapture"),
                            {"end", "cuStreamEndCapture"},
                            {"instantiate", "cuGraphInstantiate"},
                            {"launch", "cuGraphLaunch"}}) {
    CudaDriver driver = RecordingDriver();
    failing = call;
    auto replay = [&]() -> Status {
      HEDDLE_TRY(CudaCapture capture, CudaCapture::Begin(driver, Fake<CudaStreamHandle>(7)));
      HEDDLE_TRY(CudaGraph graph, capture.End());
      return graph.Launch(Fake<CudaStreamHandle>(7));
    };
    Status status = replay();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.diagnostics()[0].message, fmt::format("{}: CUDA_ERROR_FAKE (700)", said));
    // A capture is ended at most once, whatever fails.
    EXPECT_LE(std::ranges::count(calls, "end 7"), 1);
  }
}

TEST(CudaModule, LaunchesAKernel) {
  CudaDriver driver = RecordingDriver();
  {
    CudaModule module = *CudaModule::Load(driver, "code");
    CudaKernel kernel = *module.Kernel("update", 100 << 10);
    int argument = 42;
    void* arguments[] = {&argument};
    EXPECT_TRUE(kernel
                    .Launch(Fake<CudaStreamHandle>(7),
                            {.grid = 132, .block = 256, .shared_bytes = 100 << 10}, arguments)
                    .ok());
  }
  std::vector<std::string> expected{"load code", "function update", "attribute 8 = 102400",
                                    "kernel 80 <<<132, 256, 102400>>> on 7 with 42", "unload 70"};
  EXPECT_EQ(calls, expected);
  EXPECT_EQ(*driver.Architecture(0), "sm_90a");
  EXPECT_EQ(*driver.Architecture(1), "sm_80");
}

TEST(CudaDriver, SaysThatThereIsNoGpu) {
  Result<const CudaDriver*> driver = CudaDriver::Open();
  if (driver.ok()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_TRUE(driver.diagnostics()[0].message.starts_with("no GPU: "))
      << driver.diagnostics()[0].message;
}

class CubinCacheTest : public testing::Test {
 protected:
  // Returns the machine code, and whether it was compiled now.
  std::pair<std::string, bool> Get(const CudaSource& source, std::string_view version = "13.0") {
    int compiled = 0;
    Result<std::string> cubin =
        CubinCache(folder_).Get(source, version, [&](const CudaSource& s) -> Result<std::string> {
          ++compiled;
          return "code of " + s.text;
        });
    EXPECT_TRUE(cubin.ok());
    return {*cubin, compiled == 1};
  }

  TempDir temp_;
  std::string folder_ = temp_.path() + "/a/kernels";
  CudaSource source_{"text", "sm_90a", {}};
};

using Got = std::pair<std::string, bool>;

TEST_F(CubinCacheTest, CompilesASourceOnce) {
  EXPECT_EQ(Get(source_), Got("code of text", true));
  EXPECT_EQ(Get(source_), Got("code of text", false));
  // The key contains everything that machine code depends on.
  EXPECT_TRUE(Get(source_, "13.1").second);
  EXPECT_TRUE(Get({"text", "sm_80", {}}).second);
  EXPECT_TRUE(Get({"text", "sm_90a", {"--maxrregcount=64"}}).second);
  EXPECT_TRUE(Get({"text ", "sm_90a", {}}).second);
  EXPECT_FALSE(Get(source_).second);
}

TEST_F(CubinCacheTest, CompilesAgainWhereAFileIsDamaged) {
  Get(source_);
  std::string path;
  {
    // The only file of the folder.
    FILE* list = popen(("ls " + folder_).c_str(), "r");
    char name[256] = "";
    ASSERT_EQ(fscanf(list, "%255s", name), 1);
    pclose(list);
    path = folder_ + "/" + name;
  }
  std::string whole = *ReadFile(path);
  std::vector<std::string> damaged{"", "\n", whole.substr(0, whole.size() - 1), whole + "x",
                                   "foreign"};
  for (size_t at = 0; at < whole.size(); at += 7) {
    damaged.push_back(whole);
    damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ 1);
  }
  for (const std::string& content : damaged) {
    ASSERT_TRUE(WriteFile(path, content).ok());
    EXPECT_EQ(Get(source_), Got("code of text", true)) << content;
    EXPECT_EQ(Get(source_), Got("code of text", false));
  }
}

TEST_F(CubinCacheTest, NeedsNoFolder) {
  folder_ = "";
  EXPECT_TRUE(Get(source_).second);
  EXPECT_TRUE(Get(source_).second);
  // A file in place of the folder, so nothing can be written there.
  ASSERT_TRUE(WriteFile(temp_.path() + "/file", "").ok());
  folder_ = temp_.path() + "/file/kernels";
  EXPECT_TRUE(Get(source_).second);
  EXPECT_TRUE(Get(source_).second);
}

TEST_F(CubinCacheTest, KeepsNothingOfAFailure) {
  auto fails = [](const CudaSource&) -> Result<std::string> {
    return Error(Diag::kEnvironment, "does not compile");
  };
  EXPECT_FALSE(CubinCache(folder_).Get(source_, "13.0", fails).ok());
  EXPECT_TRUE(Get(source_).second);
}

}  // namespace
}  // namespace heddle::run
