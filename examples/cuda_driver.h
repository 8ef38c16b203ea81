// SPDX-License-Identifier: BSD-3-Clause
// cuda_driver.h — what gpu.cpp calls of the CUDA driver, by the names of <cuda.h>, looked up in
// libcuda.so.1 at run time: so the example builds where CUDA's toolkit is not installed.
//
// A program that is built with the toolkit includes <cuda.h> and links -lcuda instead of this file.
// With the runtime API (cudaMalloc, cudaStreamCreate, …) the calls of fa3 are the same: a
// cudaStream_t is a CUstream, and both APIs work in the GPU's primary context.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <string>

namespace cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;

inline constexpr CUresult CUDA_SUCCESS = 0;
inline constexpr unsigned CU_STREAM_NON_BLOCKING = 1;
inline constexpr int CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1;

// F(name, name that the library exports, parameters); each returns CUresult.
#define CUDA_FUNCTIONS(F)                                                                         \
  F(cuInit, "cuInit", (unsigned flags))                                                           \
  F(cuGetErrorName, "cuGetErrorName", (CUresult error, const char** name))                        \
  F(cuDeviceGetCount, "cuDeviceGetCount", (int* count))                                           \
  F(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext * context, CUdevice device)) \
  F(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                 \
  F(cuCtxSetCurrent, "cuCtxSetCurrent", (CUcontext context))                                      \
  F(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr * pointer, std::size_t bytes))                      \
  F(cuMemFree, "cuMemFree_v2", (CUdeviceptr pointer))                                             \
  F(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                                    \
    (CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream))                       \
  F(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2",                                                    \
    (void* to, CUdeviceptr from, std::size_t bytes, CUstream stream))                             \
  F(cuStreamCreate, "cuStreamCreate", (CUstream * stream, unsigned flags))                        \
  F(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream stream))                                     \
  F(cuStreamSynchronize, "cuStreamSynchronize", (CUstream stream))                                \
  F(cuStreamBeginCapture, "cuStreamBeginCapture_v2", (CUstream stream, int mode))                 \
  F(cuStreamEndCapture, "cuStreamEndCapture", (CUstream stream, CUgraph * graph))                 \
  F(cuGraphInstantiate, "cuGraphInstantiateWithFlags",                                            \
    (CUgraphExec * executable, CUgraph graph, unsigned long long flags))                          \
  F(cuGraphLaunch, "cuGraphLaunch", (CUgraphExec executable, CUstream stream))                    \
  F(cuGraphExecDestroy, "cuGraphExecDestroy", (CUgraphExec executable))                           \
  F(cuGraphDestroy, "cuGraphDestroy", (CUgraph graph))

#define CUDA_DECLARE(name, exported, parameters) inline CUresult(*name) parameters = nullptr;
CUDA_FUNCTIONS(CUDA_DECLARE)
#undef CUDA_DECLARE

// Finds all of them. "" when they are there, else why not.
inline std::string open_driver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return dlerror();
#define CUDA_FIND(name, exported, parameters)                                \
  name = reinterpret_cast<CUresult(*) parameters>(dlsym(library, exported)); \
  if (name == nullptr) return "libcuda.so.1 has no " exported ", it is too old";
  CUDA_FUNCTIONS(CUDA_FIND)
#undef CUDA_FIND
  return "";
}

}  // namespace cuda
