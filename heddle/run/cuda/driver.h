// CudaDriver: the functions of CUDA's driver that Heddle calls, looked up in libcuda at run time.
//
// This needs neither CUDA's headers nor a toolkit: every build contains it, and a machine without a
// GPU gets an error message. Handles are opaque pointers. Tests fill the table with their own
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "heddle/core/base/result.h"

namespace heddle::run {

struct CudaStreamHandle;
struct CudaGraphHandle;
struct CudaGraphExecHandle;
struct CudaModuleHandle;
struct CudaFunctionHandle;
struct CudaLaunchExtra;

// CUDA_MEMSET_NODE_PARAMS_v1: `height` rows of `width` elements.
struct CudaMemset {
  uint64_t to;
  size_t pitch;
  unsigned value;
  unsigned element_bytes;
  size_t width;
  size_t height;
};
// CUDA_KERNEL_NODE_PARAMS_v1.
struct CudaKernelNode {
  CudaFunctionHandle* function;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void** arguments;
  void** extra;
};

// A CUresult; 0 is success.
using CudaResult = int;

struct CudaDriver {
  CudaResult (*init)(unsigned flags) = nullptr;
  CudaResult (*driver_version)(int* version) = nullptr;
  CudaResult (*device_count)(int* count) = nullptr;
  CudaResult (*device_attribute)(int* value, int attribute, int device) = nullptr;
  CudaResult (*error_name)(CudaResult result, const char** name) = nullptr;

  CudaResult (*stream_begin_capture)(CudaStreamHandle* stream, int mode) = nullptr;
  CudaResult (*stream_end_capture)(CudaStreamHandle* stream, CudaGraphHandle** graph) = nullptr;
  CudaResult (*graph_instantiate)(CudaGraphExecHandle** exec, CudaGraphHandle* graph,
                                  unsigned long long flags) = nullptr;
  CudaResult (*graph_nodes)(CudaGraphHandle* graph, void** nodes, size_t* count) = nullptr;
  CudaResult (*graph_node_type)(void* node, int* type) = nullptr;
  CudaResult (*graph_memset)(void* node, CudaMemset* params) = nullptr;
  // Returns the nodes before or after a node; without `nodes`, only their number.
  CudaResult (*graph_before)(void* node, void** nodes, size_t* count) = nullptr;
  CudaResult (*graph_after)(void* node, void** nodes, size_t* count) = nullptr;
  CudaResult (*graph_add_kernel)(void** node, CudaGraphHandle* graph, void* const* before,
                                 size_t count, const CudaKernelNode* kernel) = nullptr;
  CudaResult (*graph_add_edges)(CudaGraphHandle* graph, void* const* from, void* const* to,
                                size_t count) = nullptr;
  CudaResult (*graph_remove)(void* node) = nullptr;
  CudaResult (*graph_launch)(CudaGraphExecHandle* exec, CudaStreamHandle* stream) = nullptr;
  CudaResult (*graph_exec_destroy)(CudaGraphExecHandle* exec) = nullptr;
  CudaResult (*graph_destroy)(CudaGraphHandle* graph) = nullptr;

  CudaResult (*module_load)(CudaModuleHandle** module, const void* image) = nullptr;
  CudaResult (*module_unload)(CudaModuleHandle* module) = nullptr;
  CudaResult (*module_function)(CudaFunctionHandle** function, CudaModuleHandle* module,
                                const char* name) = nullptr;
  CudaResult (*function_set)(CudaFunctionHandle* function, int attribute, int value) = nullptr;
  CudaResult (*launch)(CudaFunctionHandle* function, unsigned grid_x, unsigned grid_y,
                       unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                       unsigned shared_bytes, CudaStreamHandle* stream, void** arguments,
                       CudaLaunchExtra** extra) = nullptr;

  // Loads the driver of this machine, once. Fails if it has none, no GPU, or a driver that lacks a
  // function.
  static Result<const CudaDriver*> Open();
  // Returns the architecture that kernels are compiled for, such as `sm_90a`.
  Result<std::string> Architecture(int device) const;
  // Fails with `cuGraphLaunch: CUDA_ERROR_OUT_OF_MEMORY` unless the call succeeded.
  Status Check(CudaResult result, std::string_view call) const;
};

}  // namespace heddle::run
