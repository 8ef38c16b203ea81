/* SPDX-License-Identifier: BSD-3-Clause
 * cuda_driver.h — what gpu.cpp and decode.c call of the CUDA driver, by the names of <cuda.h>,
 * looked up in libcuda.so.1 at run time: so the examples build where CUDA's toolkit is not
 * installed.
 *
 * A program that is built with the toolkit includes <cuda.h> and links -lcuda instead of this file.
 * With the runtime API (cudaMalloc, cudaStreamCreate, …) the calls of fa3 are the same: a
 * cudaStream_t is a CUstream, and both APIs work in the GPU's primary context.
 */
#ifndef FA3_EXAMPLES_CUDA_DRIVER_H_
#define FA3_EXAMPLES_CUDA_DRIVER_H_

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st* CUcontext;
typedef struct CUstream_st* CUstream;
typedef struct CUgraph_st* CUgraph;
typedef struct CUgraphExec_st* CUgraphExec;

enum { CUDA_SUCCESS = 0, CU_STREAM_NON_BLOCKING = 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1 };

/* F(name, name that the library exports, parameters); each returns CUresult. */
#define CUDA_FUNCTIONS(F)                                                                         \
  F(cuInit, "cuInit", (unsigned flags))                                                           \
  F(cuGetErrorName, "cuGetErrorName", (CUresult error, const char** name))                        \
  F(cuDeviceGetCount, "cuDeviceGetCount", (int* count))                                           \
  F(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext * context, CUdevice device)) \
  F(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                 \
  F(cuCtxSetCurrent, "cuCtxSetCurrent", (CUcontext context))                                      \
  F(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr * pointer, size_t bytes))                           \
  F(cuMemFree, "cuMemFree_v2", (CUdeviceptr pointer))                                             \
  F(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                                    \
    (CUdeviceptr to, const void* from, size_t bytes, CUstream stream))                            \
  F(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2",                                                    \
    (void* to, CUdeviceptr from, size_t bytes, CUstream stream))                                  \
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

#define CUDA_DECLARE(name, exported, parameters) static CUresult(*name) parameters;
CUDA_FUNCTIONS(CUDA_DECLARE)
#undef CUDA_DECLARE

/* Finds all of them. NULL when they are there, else why not. */
static inline const char* open_driver(void) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  void* found;
  if (library == NULL) return dlerror();
#define CUDA_FIND(name, exported, parameters)                                  \
  found = dlsym(library, exported);                                            \
  if (found == NULL) return "libcuda.so.1 has no " exported ", it is too old"; \
  memcpy(&name, &found, sizeof found); /* ISO C has no cast from data to code */
  CUDA_FUNCTIONS(CUDA_FIND)
#undef CUDA_FIND
  return NULL;
}

#endif /* FA3_EXAMPLES_CUDA_DRIVER_H_ */
