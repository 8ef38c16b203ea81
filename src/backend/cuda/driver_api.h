// SPDX-License-Identifier: BSD-3-Clause
// driver_api.h — the functions of the CUDA driver and of NVRTC that fa3 calls, declared here so
// that every build has the cuda backend. Names carry the version that the libraries export; all
// exist since CUDA 12.4. tests/cuda/api_test.cpp compares this file with cuda.h and nvrtc.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/tensor_map.h"

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUlib_st;
struct CUkern_st;
struct _nvrtcProgram;

namespace fa3::cuda {

// Enumerations are int here: values that we do not know can come back.
using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = ::CUctx_st*;
using CUstream = ::CUstream_st*;
using CUevent = ::CUevent_st*;
// The handle of each thread's own default stream, CU_STREAM_PER_THREAD.
inline const CUstream kStreamPerThread = reinterpret_cast<CUstream>(2);
using CUlibrary = ::CUlib_st*;
using CUkernel = ::CUkern_st*;
using nvrtcResult = int;
using nvrtcProgram = ::_nvrtcProgram*;

// Values that fa3 compares or passes, under their own names without the prefix.
enum : CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_INVALID_SOURCE = 300,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
};
enum CUdevice_attribute : int {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};
enum CUfunction_attribute : int {
  CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
};
enum CUlaunchAttributeID : int {
  CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 2,
  CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
};
enum CUtensorMapDataType : int {
  CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
  CU_TENSOR_MAP_DATA_TYPE_UINT16 = 1,
  CU_TENSOR_MAP_DATA_TYPE_UINT32 = 2,
  CU_TENSOR_MAP_DATA_TYPE_INT32 = 3,
  CU_TENSOR_MAP_DATA_TYPE_UINT64 = 4,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
  CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9,
};
enum CUtensorMapInterleave : int { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum CUtensorMapSwizzle : int {
  CU_TENSOR_MAP_SWIZZLE_NONE = 0,
  CU_TENSOR_MAP_SWIZZLE_32B = 1,
  CU_TENSOR_MAP_SWIZZLE_64B = 2,
  CU_TENSOR_MAP_SWIZZLE_128B = 3,
};
enum CUtensorMapL2promotion : int { CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2 };
enum CUtensorMapFloatOOBfill : int {
  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0,
  CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA = 1,
};
enum CUstreamCaptureStatus : int { CU_STREAM_CAPTURE_STATUS_NONE = 0 };
enum : unsigned { CU_STREAM_NON_BLOCKING = 1, CU_EVENT_DEFAULT = 0 };
enum : nvrtcResult { NVRTC_SUCCESS = 0, NVRTC_ERROR_COMPILATION = 6 };

union CUlaunchAttributeValue {
  char pad[64];
  int cooperative;
  struct {
    unsigned x, y, z;
  } clusterDim;
  int programmaticStreamSerializationAllowed;
};
struct CUlaunchAttribute {
  CUlaunchAttributeID id;
  char pad[4];
  CUlaunchAttributeValue value;
};
struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned numAttrs;
};

// F(name as exported, parameters); each returns CUresult.
#define FA3_DRIVER_FUNCTIONS(F)                                                                   \
  F(cuInit, (unsigned flags))                                                                     \
  F(cuDriverGetVersion, (int* version))                                                           \
  F(cuGetErrorName, (CUresult error, const char** text))                                          \
  F(cuGetErrorString, (CUresult error, const char** text))                                        \
  F(cuDeviceGetCount, (int* count))                                                               \
  F(cuDeviceGet, (CUdevice * device, int ordinal))                                                \
  F(cuDeviceGetName, (char* name, int capacity, CUdevice device))                                 \
  F(cuDeviceGetAttribute, (int* value, CUdevice_attribute attribute, CUdevice device))            \
  F(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))                                       \
  F(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                             \
  F(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                              \
  F(cuCtxGetCurrent, (CUcontext * context))                                                       \
  F(cuCtxGetDevice, (CUdevice * device))                                                          \
  F(cuCtxPushCurrent_v2, (CUcontext context))                                                     \
  F(cuCtxPopCurrent_v2, (CUcontext * context))                                                    \
  F(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes))                                         \
  F(cuMemFree_v2, (CUdeviceptr pointer))                                                          \
  F(cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                                 \
  F(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream))      \
  F(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, size_t bytes, CUstream stream))            \
  F(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream))        \
  F(cuMemsetD2D32Async,                                                                           \
    (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream)) \
  F(cuStreamCreate, (CUstream * stream, unsigned flags))                                          \
  F(cuStreamDestroy_v2, (CUstream stream))                                                        \
  F(cuStreamSynchronize, (CUstream stream))                                                       \
  F(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus * status))                       \
  F(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                          \
  F(cuEventCreate, (CUevent * event, unsigned flags))                                             \
  F(cuEventDestroy_v2, (CUevent event))                                                           \
  F(cuEventRecord, (CUevent event, CUstream stream))                                              \
  F(cuEventSynchronize, (CUevent event))                                                          \
  F(cuEventElapsedTime, (float* milliseconds, CUevent start, CUevent end))                        \
  F(cuLibraryLoadData,                                                                            \
    (CUlibrary * library, const void* code, int* jit_options, void** jit_values,                  \
     unsigned jit_count, int* options, void** values, unsigned count))                            \
  F(cuLibraryUnload, (CUlibrary library))                                                         \
  F(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char* symbol))               \
  F(cuKernelGetAttribute,                                                                         \
    (int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device))               \
  F(cuKernelSetAttribute,                                                                         \
    (CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device))                \
  F(cuKernelGetParamInfo, (CUkernel kernel, size_t index, size_t * offset, size_t * bytes))       \
  F(cuLaunchKernelEx,                                                                             \
    (const CUlaunchConfig* config, CUkernel kernel, void** parameters, void** extra))             \
  F(cuTensorMapEncodeTiled,                                                                       \
    (TensorMap * map, CUtensorMapDataType type, uint32_t rank, void* base, const uint64_t* dims,  \
     const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides,               \
     CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2,     \
     CUtensorMapFloatOOBfill fill))

// F(name, parameters); each returns nvrtcResult. nvrtcGetErrorString, which returns text, is apart.
#define FA3_NVRTC_FUNCTIONS(F)                                                                    \
  F(nvrtcVersion, (int* major, int* minor))                                                       \
  F(nvrtcCreateProgram, (nvrtcProgram * program, const char* source, const char* name, int count, \
                         const char* const* headers, const char* const* names))                   \
  F(nvrtcDestroyProgram, (nvrtcProgram * program))                                                \
  F(nvrtcAddNameExpression, (nvrtcProgram program, const char* expression))                       \
  F(nvrtcCompileProgram, (nvrtcProgram program, int count, const char* const* options))           \
  F(nvrtcGetProgramLogSize, (nvrtcProgram program, size_t * bytes))                               \
  F(nvrtcGetProgramLog, (nvrtcProgram program, char* log))                                        \
  F(nvrtcGetCUBINSize, (nvrtcProgram program, size_t * bytes))                                    \
  F(nvrtcGetCUBIN, (nvrtcProgram program, char* cubin))                                           \
  F(nvrtcGetLoweredName, (nvrtcProgram program, const char* expression, const char** symbol))

}  // namespace fa3::cuda
