// SPDX-License-Identifier: BSD-3-Clause
// fake_driver.cpp — a libcuda.so.1 for tests: host memory, kernels that do nothing, and a record
// of contexts, allocations and launches. Environment variables say what it pretends:
// FAKE_CUDA_VERSION (13000), FAKE_CUDA_INIT (result of cuInit), FAKE_CUDA_GPUS (2),
// FAKE_CUDA_CAPABILITY (90), FAKE_CUDA_FAIL (a function that fails), FAKE_CUDA_FAIL_WITH (its
// result, 999), FAKE_CUDA_CAPTURING,
// FAKE_CUDA_FORWARD (any code is the forward's kernel, see forward_kernel, but those of the
// backward, see backward_kernel, and of decode, which do nothing),
// FAKE_CUDA_CLOCK (a kernel takes 10 µs for each thread of a CTA; else any work takes 1.5 ms),
// FAKE_CUDA_KILL and FAKE_CUDA_HANG (which load of code, from 1 on, ends or stops the process).
// Work on a stream that is captured goes into a graph, whose launch does it.
#include "fake_driver.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/sm90/bwd/args.h"
#include "device/sm90/decode/args.h"
#include "device/sm90/fwd/args.h"
#include "fake_attention.h"

using namespace fa3::cuda;  // NOLINT: the functions below are the namespace's declarations

struct CUctx_st {
  int device;
};
struct CUgraph_st {
  std::vector<std::function<void()>> work;
};
using CUgraph = CUgraph_st*;
struct CUstream_st {
  CUcontext context;
  CUgraph captured = nullptr;
};
struct CUevent_st {
  double recorded_ms;
};
struct CUlib_st {
  int dummy;
};
struct CUkern_st {
  size_t args_bytes;
  bool gradients;  // the backward's main kernel
};

namespace {

constexpr CUresult kInvalidValue = 1, kInvalidContext = 201, kCaptured = 900, kUnknown = 999;

CUctx_st primary[2] = {{0}, {1}};
thread_local std::vector<CUcontext> stack;
std::recursive_mutex mutex;
FakeCuda books;
std::set<void*> memory;
int captures = 0;  // streams that are captured
double clock_ms = 0;

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

bool told_to_fail(const char* function) {
  const char* text = std::getenv("FAKE_CUDA_FAIL");
  return text != nullptr && std::strcmp(text, function) == 0;
}

const char* forward() { return std::getenv("FAKE_CUDA_FORWARD"); }

// Is it one that this made, and not a default stream?
bool is_made(CUstream stream) { return stream != nullptr && stream != kStreamPerThread; }

// Does work that is queued on a stream: now, or when the graph is launched that captures it.
void submit(CUstream stream, std::function<void()> work) {
  if (is_made(stream) && stream->captured != nullptr)
    stream->captured->work.push_back(std::move(work));
  else
    work();
}

// 42 into the first element of O, taken as BF16, and of LSE; with FAKE_CUDA_FORWARD=stray into what
// lies before them; with FAKE_CUDA_FORWARD=attention the attention of dense BF16 tensors, into O.
void forward_kernel(const fa3::sm90::FwdArgs& args) {
  if (std::strcmp(forward(), "attention") == 0) return fake_attention(args);
  constexpr uint16_t kBf16 = 0x4228;
  const int at = std::strcmp(forward(), "stray") == 0 ? -1 : 0;
  reinterpret_cast<uint16_t*>(FakeMap(args.o).base())[at] = kBf16;
  if (args.lse != nullptr) args.lse[at] = 42;
}

// 42 into the first element of dK, taken as BF16. False: that is not the GPU's memory.
bool backward_kernel(const fa3::sm90::BwdArgs& args) {
  auto block = memory.upper_bound(args.dk.data);
  if (block == memory.begin()) return false;
  const auto offset = static_cast<char*>(args.dk.data) - static_cast<char*>(*--block);
  if (static_cast<size_t>(offset) >= malloc_usable_size(*block)) return false;
  constexpr uint16_t kBf16 = 0x4228;
  *static_cast<uint16_t*>(args.dk.data) = kBf16;
  return true;
}

// What a symbol, which is the expression as the fake compiler gives it, names.
CUkern_st* kernel_of(const char* symbol) {
  static CUkern_st tested{sizeof(FakeArgs), false}, forwards{sizeof(fa3::sm90::FwdArgs), false},
      deltas{sizeof(fa3::sm90::BwdDeltaArgs), false}, mains{sizeof(fa3::sm90::BwdArgs), true},
      dqs{sizeof(fa3::sm90::BwdDqArgs), false}, decodes{sizeof(fa3::sm90::DecodeArgs), false},
      combines{sizeof(fa3::sm90::CombineArgs), false};
  if (forward() == nullptr) return &tested;
  if (std::strstr(symbol, "::bwd_delta<") != nullptr) return &deltas;
  if (std::strstr(symbol, "::bwd_dq<") != nullptr) return &dqs;
  if (std::strstr(symbol, "::decode<") != nullptr) return &decodes;
  if (std::strstr(symbol, "::combine<") != nullptr) return &combines;
  return std::strstr(symbol, "::bwd<") != nullptr ? &mains : &forwards;
}

}  // namespace

// Every function begins so: locked, counted, and failing on request.
#define FAKE(name)                        \
  const std::lock_guard lock(mutex);      \
  books.calls += std::string(name) + " "; \
  if (told_to_fail(name)) return number("FAKE_CUDA_FAIL_WITH", kUnknown)
// And those that work within a context.
#define FAKE_IN_CONTEXT(name) \
  FAKE(name);                 \
  if (stack.empty()) return kInvalidContext

extern "C" {

FakeCuda* fake_cuda() { return &books; }
void fake_cuda_push(int device) { stack.push_back(new CUctx_st{device}); }  // the caller's context
void fake_cuda_pop() {
  delete stack.back();
  stack.pop_back();
}
int fake_cuda_depth() { return static_cast<int>(stack.size()); }

CUresult cuInit(unsigned) {
  FAKE("cuInit");
  return number("FAKE_CUDA_INIT", CUDA_SUCCESS);
}
CUresult cuDriverGetVersion(int* version) {
  *version = number("FAKE_CUDA_VERSION", 13000);
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "as told";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  FAKE("cuDeviceGetCount");
  *count = number("FAKE_CUDA_GPUS", 2);
  return *count == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  FAKE("cuDeviceGet");
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int capacity, CUdevice) {
  std::strncpy(name, "Fake H200", static_cast<size_t>(capacity));
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  const int capability = number("FAKE_CUDA_CAPABILITY", 90);
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = capability / 10;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = capability % 10;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 132;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = 50 << 20;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = 227 * 1024;
      return CUDA_SUCCESS;
  }
  return kInvalidValue;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  *bytes = size_t{1} << 37;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  FAKE("cuDevicePrimaryCtxRetain");
  *context = &primary[device];
  ++books.retained;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  FAKE("cuDevicePrimaryCtxRelease_v2");
  --books.retained;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = stack.empty() ? nullptr : stack.back();
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  FAKE("cuCtxSetCurrent");
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  FAKE_IN_CONTEXT("cuCtxGetDevice");
  *device = stack.back()->device;
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  stack.push_back(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (stack.empty()) return kInvalidContext;
  *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() { return stack.empty() ? kInvalidContext : CUDA_SUCCESS; }
CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  FAKE_IN_CONTEXT("cuMemAlloc_v2");
  if (captures > 0) return kCaptured;
  if (bytes == 0) return kInvalidValue;
  if (bytes > size_t{1} << 40) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const block = std::malloc(bytes);
  memory.insert(block);
  books.allocations = static_cast<int>(memory.size());
  *pointer = reinterpret_cast<CUdeviceptr>(block);
  return CUDA_SUCCESS;
}
CUresult cuMemFree_v2(CUdeviceptr pointer) {
  FAKE_IN_CONTEXT("cuMemFree_v2");
  void* const block = reinterpret_cast<void*>(pointer);
  if (memory.erase(block) == 0) return kInvalidValue;
  books.allocations = static_cast<int>(memory.size());
  std::free(block);
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  FAKE_IN_CONTEXT("cuMemGetInfo_v2");
  *free_bytes = 7;
  *total_bytes = 9;
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  FAKE_IN_CONTEXT("cuMemcpyHtoDAsync_v2");
  if (stream->context != stack.back()) return kInvalidContext;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  FAKE_IN_CONTEXT("cuMemcpyDtoHAsync_v2");
  if (stream->context != stack.back()) return kInvalidContext;
  std::memcpy(to, reinterpret_cast<void*>(from), bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned value, size_t width,
                            size_t height, CUstream stream) {
  FAKE_IN_CONTEXT("cuMemsetD2D32Async");
  submit(stream, [=] {
    for (size_t i = 0; i < height; ++i)
      std::fill_n(reinterpret_cast<unsigned*>(to + i * pitch), width, value);
  });
  return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  FAKE_IN_CONTEXT("cuMemsetD8Async");
  submit(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
  return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream* stream, unsigned) {
  FAKE_IN_CONTEXT("cuStreamCreate");
  *stream = new CUstream_st{stack.back()};
  ++books.streams;
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  FAKE_IN_CONTEXT("cuStreamDestroy_v2");
  delete stream;
  --books.streams;
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  FAKE_IN_CONTEXT("cuStreamSynchronize");
  return is_made(stream) && stream->captured != nullptr ? kCaptured : CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  FAKE_IN_CONTEXT("cuStreamIsCapturing");
  const int captured = is_made(stream) && stream->captured != nullptr;
  *status = CUstreamCaptureStatus(number("FAKE_CUDA_CAPTURING", captured));
  return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture_v2(CUstream stream, int) {
  FAKE_IN_CONTEXT("cuStreamBeginCapture_v2");
  if (stream == nullptr || stream->captured != nullptr) return kCaptured;
  stream->captured = new CUgraph_st;
  ++captures;
  return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  FAKE_IN_CONTEXT("cuStreamEndCapture");
  if (stream == nullptr || stream->captured == nullptr) return kInvalidValue;
  *graph = std::exchange(stream->captured, nullptr);
  --captures;
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraph* executable, CUgraph graph, unsigned long long) {
  FAKE_IN_CONTEXT("cuGraphInstantiateWithFlags");
  *executable = new CUgraph_st(*graph);
  return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraph executable, CUstream) {
  FAKE_IN_CONTEXT("cuGraphLaunch");
  for (const auto& work : executable->work) work();
  return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraph executable) {
  FAKE("cuGraphExecDestroy");
  delete executable;
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
  FAKE("cuGraphDestroy");
  delete graph;
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned) {
  FAKE_IN_CONTEXT("cuStreamWaitEvent");
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned) {
  FAKE_IN_CONTEXT("cuEventCreate");
  *event = new CUevent_st{};
  ++books.events;
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent event) {
  FAKE("cuEventDestroy_v2");
  delete event;
  --books.events;
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream) {
  FAKE_IN_CONTEXT("cuEventRecord");
  event->recorded_ms = clock_ms;
  return CUDA_SUCCESS;
}
CUresult cuEventSynchronize(CUevent) {
  FAKE_IN_CONTEXT("cuEventSynchronize");
  return CUDA_SUCCESS;
}
CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  FAKE_IN_CONTEXT("cuEventElapsedTime");
  *milliseconds = 1.5f;
  if (std::getenv("FAKE_CUDA_CLOCK") != nullptr)
    *milliseconds = static_cast<float>(to->recorded_ms - from->recorded_ms);
  return CUDA_SUCCESS;
}
CUresult cuLibraryLoadData(CUlibrary* library, const void* code, int*, void**, unsigned, int*,
                           void**, unsigned) {
  FAKE("cuLibraryLoadData");
  ++books.loads;
  if (books.loads == number("FAKE_CUDA_KILL", 0)) raise(SIGKILL);
  if (books.loads == number("FAKE_CUDA_HANG", 0)) pause();
  if (forward() == nullptr && std::strcmp(static_cast<const char*>(code), "cubin") != 0)
    return CUDA_ERROR_INVALID_IMAGE;
  *library = new CUlib_st{};
  ++books.libraries;
  return CUDA_SUCCESS;
}
CUresult cuLibraryUnload(CUlibrary library) {
  FAKE("cuLibraryUnload");
  delete library;
  --books.libraries;
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char* symbol) {
  FAKE("cuLibraryGetKernel");
  if (forward() == nullptr && std::strcmp(symbol, "kernel") != 0) return kInvalidValue;
  *kernel = kernel_of(symbol);
  return CUDA_SUCCESS;
}
CUresult cuKernelGetAttribute(int* value, CUfunction_attribute, CUkernel, CUdevice) {
  FAKE("cuKernelGetAttribute");
  *value = 168;
  return CUDA_SUCCESS;
}
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel, CUdevice) {
  FAKE("cuKernelSetAttribute");
  books.attributes += std::to_string(attribute) + "=" + std::to_string(value) + " ";
  return CUDA_SUCCESS;
}
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* bytes) {
  FAKE("cuKernelGetParamInfo");
  if (index != 0) return kInvalidValue;
  *offset = 0;
  *bytes = kernel->args_bytes;
  return CUDA_SUCCESS;
}
CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUkernel kernel, void** parameters,
                          void**) {
  FAKE_IN_CONTEXT("cuLaunchKernelEx");
  const CUstream stream = config->hStream;  // none: the default stream of the current context
  if (is_made(stream) && stream->context != stack.back()) return kInvalidContext;
  books.launch = *config;
  books.launch_attributes.assign(config->attrs, config->attrs + config->numAttrs);
  books.args = *static_cast<const FakeArgs*>(parameters[0]);
  clock_ms += config->blockDimX * 1e-2;
  const unsigned ctas = config->gridDimX * config->gridDimY * config->gridDimZ;
  for (const CUlaunchAttribute& attribute : books.launch_attributes) {
    const bool cooperative = attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    if (cooperative && ctas > 132) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  }
  if (forward() == nullptr) return CUDA_SUCCESS;
  if (kernel->gradients) {
    const auto& args = *static_cast<const fa3::sm90::BwdArgs*>(parameters[0]);
    return backward_kernel(args) ? CUDA_SUCCESS : kInvalidValue;
  }
  if (kernel->args_bytes != sizeof(fa3::sm90::FwdArgs)) return CUDA_SUCCESS;
  const auto args = *static_cast<const fa3::sm90::FwdArgs*>(parameters[0]);
  submit(stream, [args] { forward_kernel(args); });
  return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeTiled(fa3::TensorMap* map, CUtensorMapDataType type, uint32_t rank,
                                void* base, const uint64_t* dims, const uint64_t* strides,
                                const uint32_t* box, const uint32_t* element_strides,
                                CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  FAKE("cuTensorMapEncodeTiled");
  uint64_t* out = reinterpret_cast<uint64_t*>(map->opaque);  // as FakeMap reads it
  *out++ = static_cast<uint64_t>(type) | uint64_t{rank} << 8 | uint64_t(swizzle) << 16 |
           uint64_t(fill) << 24;
  *out++ = reinterpret_cast<uint64_t>(base);
  for (uint32_t i = 0; i < rank; ++i) *out++ = dims[i];
  for (uint32_t i = 0; i + 1 < rank; ++i) *out++ = strides[i];
  for (uint32_t i = 0; i < rank; ++i) *out++ = box[i] | uint64_t{element_strides[i]} << 32;
  return CUDA_SUCCESS;
}

}  // extern "C"
