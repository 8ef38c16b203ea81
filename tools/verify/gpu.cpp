// SPDX-License-Identifier: BSD-3-Clause
// gpu.cpp — libcuda opened at run time: memory, copies, events.
#include "tools/verify/gpu.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>

struct CUevent_st;

namespace fa3::verify {
namespace {

using Address = unsigned long long;  // CUdeviceptr

// Names carry the version that the library exports; each returns a CUresult, 0 = success.
#define FA3_GPU_FUNCTIONS(F)                                                             \
  F(cuInit, (unsigned flags))                                                            \
  F(cuGetErrorName, (int error, const char** text))                                      \
  F(cuDeviceGet, (int* device, int ordinal))                                             \
  F(cuDevicePrimaryCtxRetain, (CUctx_st * *context, int device))                         \
  F(cuDevicePrimaryCtxRelease_v2, (int device))                                          \
  F(cuCtxPushCurrent_v2, (CUctx_st * context))                                           \
  F(cuCtxPopCurrent_v2, (CUctx_st * *context))                                           \
  F(cuMemAlloc_v2, (Address * memory, size_t bytes))                                     \
  F(cuMemFree_v2, (Address memory))                                                      \
  F(cuMemcpyHtoDAsync_v2, (Address to, const void* from, size_t bytes, CUstream_st* on)) \
  F(cuMemcpyDtoHAsync_v2, (void* to, Address from, size_t bytes, CUstream_st* on))       \
  F(cuStreamCreate, (CUstream_st * *stream, unsigned flags))                             \
  F(cuStreamDestroy_v2, (CUstream_st * stream))                                          \
  F(cuStreamSynchronize, (CUstream_st * stream))                                         \
  F(cuEventCreate, (CUevent_st * *event, unsigned flags))                                \
  F(cuEventDestroy_v2, (CUevent_st * event))                                             \
  F(cuEventRecord, (CUevent_st * event, CUstream_st * stream))                           \
  F(cuEventSynchronize, (CUevent_st * event))                                            \
  F(cuEventElapsedTime, (float* milliseconds, CUevent_st* start, CUevent_st* end))

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING

struct Driver {
#define FA3_DECLARE(name, parameters) int(*name) parameters = nullptr;
  FA3_GPU_FUNCTIONS(FA3_DECLARE)
#undef FA3_DECLARE

  Driver() {
#define FA3_FIND(name, parameters) name = reinterpret_cast<decltype(name)>(Gpu::function(#name));
    FA3_GPU_FUNCTIONS(FA3_FIND)
#undef FA3_FIND
  }

  void check(int result, const char* call) const {
    if (result == 0) return;
    const char* name = nullptr;
    if (cuGetErrorName(result, &name) != 0 || name == nullptr) name = "an unknown error";
    throw std::runtime_error(fmt::format("the GPU: {}: {}", call, name));
  }
};

const Driver& driver() {
  static const Driver opened;
  return opened;
}

#define FA3_GPU_CALL(name, ...) driver().check(driver().name(__VA_ARGS__), #name)

Address address(const void* memory) { return reinterpret_cast<Address>(memory); }

class Event {
 public:
  Event() { FA3_GPU_CALL(cuEventCreate, &event_, 0u); }
  ~Event() { driver().cuEventDestroy_v2(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  CUevent_st* get() const { return event_; }

 private:
  CUevent_st* event_ = nullptr;
};

// The context for the length of a scope.
class Scope {
 public:
  explicit Scope(CUctx_st* context) { FA3_GPU_CALL(cuCtxPushCurrent_v2, context); }
  ~Scope() {
    CUctx_st* popped = nullptr;
    driver().cuCtxPopCurrent_v2(&popped);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
};

}  // namespace

void* Gpu::function(const char* name) {
  constexpr const char* kLibrary = "libcuda.so.1";
  static void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw std::runtime_error(
        fmt::format("{} cannot be opened; install the NVIDIA driver", kLibrary));
  void* const found = dlsym(library, name);
  if (found == nullptr)
    throw std::runtime_error(fmt::format("{} has no {}; update the driver", kLibrary, name));
  return found;
}

Gpu::Gpu(int ordinal) {
  FA3_GPU_CALL(cuInit, 0u);
  FA3_GPU_CALL(cuDeviceGet, &device_, ordinal);
  FA3_GPU_CALL(cuDevicePrimaryCtxRetain, &context_, device_);
  try {
    within([&] { FA3_GPU_CALL(cuStreamCreate, &stream_, kNonBlocking); });
  } catch (...) {
    driver().cuDevicePrimaryCtxRelease_v2(device_);
    throw;
  }
}

Gpu::~Gpu() {
  try {
    within([&] { driver().cuStreamDestroy_v2(stream_); });
  } catch (const std::exception&) {  // a lost GPU has nothing to free
  }
  driver().cuDevicePrimaryCtxRelease_v2(device_);
}

void Gpu::within(const std::function<void()>& work) {
  const Scope scope(context_);
  work();
}

void* Gpu::allocate(size_t bytes) {
  Address memory = 0;
  within([&] { FA3_GPU_CALL(cuMemAlloc_v2, &memory, std::max<size_t>(bytes, 1)); });
  return reinterpret_cast<void*>(memory);
}

void Gpu::release(void* memory) noexcept {
  try {
    within([&] { driver().cuMemFree_v2(address(memory)); });
  } catch (const std::exception&) {
  }
}

void Gpu::upload(void* to, const void* from, size_t bytes) {
  within([&] { FA3_GPU_CALL(cuMemcpyHtoDAsync_v2, address(to), from, bytes, stream_); });
  synchronize();
}

void Gpu::download(void* to, const void* from, size_t bytes) {
  within([&] { FA3_GPU_CALL(cuMemcpyDtoHAsync_v2, to, address(from), bytes, stream_); });
  synchronize();
}

void Gpu::synchronize() {
  within([&] { FA3_GPU_CALL(cuStreamSynchronize, stream_); });
}

double Gpu::time_ms(const std::function<void()>& submit) {
  float milliseconds = 0;
  within([&] {
    const Event start, end;
    FA3_GPU_CALL(cuEventRecord, start.get(), stream_);
    submit();
    FA3_GPU_CALL(cuEventRecord, end.get(), stream_);
    FA3_GPU_CALL(cuEventSynchronize, end.get());
    FA3_GPU_CALL(cuEventElapsedTime, &milliseconds, start.get(), end.get());
  });
  return milliseconds;
}

}  // namespace fa3::verify
