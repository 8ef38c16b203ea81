// SPDX-License-Identifier: BSD-3-Clause
// runtime.cpp — memory, copies and launches through the driver.
#include "backend/cuda/runtime.h"

#include <algorithm>

#include "backend/cuda/tensor_map.h"
#include "runtime/launch_shape.h"

namespace fa3::cuda {
namespace {

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// A launch shape as the driver takes it. Holds what the driver's struct points to.
struct Launch {
  Launch(const LaunchShape& shape, CUstream stream) {
    config.gridDimX = shape.grid[0];
    config.gridDimY = shape.grid[1];
    config.gridDimZ = shape.grid[2];
    config.blockDimX = shape.threads;
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = shape.smem_bytes;
    config.hStream = stream;
    config.attrs = attributes;
    if (shape.cluster > 1)
      add(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim = {shape.cluster, 1, 1};
    if (shape.pdl) {
      add(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
          .programmaticStreamSerializationAllowed = 1;
    }
    // CTAs that wait for one another must all be on the GPU at once.
    if (shape.waiting) add(CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1;
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  CUlaunchAttributeValue& add(CUlaunchAttributeID id) {
    CUlaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = id;
    return attribute.value;
  }

  CUlaunchAttribute attributes[3] = {};
  CUlaunchConfig config{};
};

}  // namespace

Result<std::unique_ptr<CudaRuntime>> CudaRuntime::open(const Driver& driver, Jit& jit, int device,
                                                       CUstream stream) {
  FA3_TRY(GpuInfo gpu, driver.gpu(device));
  std::unique_ptr<CudaRuntime> runtime(new CudaRuntime(driver, jit, std::move(gpu), stream));
  if (runtime->own_stream_) {
    const ContextScope scope(driver, runtime->context_.get());
    driver.check(driver.cuStreamCreate(&runtime->stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate",
                 "to order work");
  }
  return runtime;
}

CudaRuntime::CudaRuntime(const Driver& driver, Jit& jit, GpuInfo gpu, CUstream stream)
    : driver_(driver),
      gpu_(std::move(gpu)),
      context_(Context::of(driver, gpu_.device)),
      stream_(stream),
      own_stream_(stream == nullptr),
      kernels_(driver, jit, gpu_) {}

// Errors here come from a GPU that failed before; there is no caller left to report them to.
CudaRuntime::~CudaRuntime() {
  if (driver_.cuCtxPushCurrent_v2(context_.get()) != CUDA_SUCCESS) return;
  if (stream_ != nullptr) driver_.cuStreamSynchronize(stream_);
  for (const auto& [pointer, name] : allocations_) driver_.cuMemFree_v2(address(pointer));
  if (own_stream_ && stream_ != nullptr) driver_.cuStreamDestroy_v2(stream_);
  CUcontext popped = nullptr;
  driver_.cuCtxPopCurrent_v2(&popped);
}

// ---- Memory -------------------------------------------------------------------------------------

void* CudaRuntime::allocate(size_t bytes, const char* name) {
  const ContextScope scope(driver_, context_.get());
  CUdeviceptr pointer = 0;
  const CUresult result = driver_.cuMemAlloc_v2(&pointer, std::max<size_t>(bytes, 1));
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    size_t free_bytes = 0, total_bytes = 0;
    driver_.check(driver_.cuMemGetInfo_v2(&free_bytes, &total_bytes), "cuMemGetInfo",
                  "to say how much memory is free");
    throw Error(FA3_OUT_OF_MEMORY,
                fmt::format("cuda: {}: {} bytes do not fit on GPU {} ({}), where {} of {} are "
                            "free; use a smaller problem, or end other programs on the GPU",
                            name, bytes, gpu_.ordinal, gpu_.name, free_bytes, total_bytes));
  }
  driver_.check(result, "cuMemAlloc", name);
  void* const memory = reinterpret_cast<void*>(pointer);
  const std::lock_guard lock(mutex_);
  allocations_[memory] = name;
  return memory;
}

void CudaRuntime::release(void* pointer) {
  if (pointer == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    if (allocations_.erase(pointer) == 0) {
      throw Error(FA3_INVALID_ARGUMENT,
                  fmt::format("cuda: release of {}, which this runtime has not allocated or has "
                              "released before; release what allocate returned, once",
                              pointer));
    }
  }
  const ContextScope scope(driver_, context_.get());
  driver_.check(driver_.cuMemFree_v2(address(pointer)), "cuMemFree", "to release memory");
}

void CudaRuntime::copied(CUresult result, const char* call, const char* purpose) const {
  driver_.check(result, call, purpose);
  driver_.check(driver_.cuStreamSynchronize(stream_), "cuStreamSynchronize", purpose);
}

void CudaRuntime::upload(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const ContextScope scope(driver_, context_.get());
  copied(driver_.cuMemcpyHtoDAsync_v2(address(to), from, bytes, stream_), "cuMemcpyHtoDAsync",
         "to copy to the GPU");
}

void CudaRuntime::download(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const ContextScope scope(driver_, context_.get());
  copied(driver_.cuMemcpyDtoHAsync_v2(to, address(from), bytes, stream_), "cuMemcpyDtoHAsync",
         "to copy from the GPU");
}

bool CudaRuntime::captures(StreamRef on) const {
  const ContextScope scope(driver_, context_.get());
  return capturing(driver_, stream_of(on));
}

Status CudaRuntime::download(void* to, const void* from, size_t bytes, StreamRef on) {
  const ContextScope scope(driver_, context_.get());
  const CUstream stream = stream_of(on);
  if (capturing(driver_, stream))
    return unsupported("cuda: a stream on which a graph is captured cannot be waited for");
  driver_.check(driver_.cuMemcpyDtoHAsync_v2(to, address(from), bytes, stream), "cuMemcpyDtoHAsync",
                "to copy from the GPU");
  driver_.check(driver_.cuStreamSynchronize(stream), "cuStreamSynchronize", "to copy from the GPU");
  return {};
}

Result<TensorMap> CudaRuntime::encode(const TensorMapSpec& spec) {
  const ContextScope scope(driver_, context_.get());
  return encode_tensor_map(driver_, spec);
}

// ---- Programs -----------------------------------------------------------------------------------

Status CudaRuntime::prepare(const Program& program, StreamRef on) {
  const ContextScope scope(driver_, context_.get());
  return kernels_.get(program, stream_of(on)).status();
}

Status CudaRuntime::fill(void* to, uint32_t word, size_t count, size_t apart, StreamRef on) {
  const ContextScope scope(driver_, context_.get());
  // As rows of one word.
  const CUresult result =
      driver_.cuMemsetD2D32Async(address(to), apart, word, 1, count, stream_of(on));
  if (result == CUDA_SUCCESS) return {};
  return {Driver::code_of(result),
          fmt::format("cuda: cuMemsetD2D32Async (to set {} words at {}, {} bytes apart): {}", count,
                      to, apart, driver_.error_text(result))};
}

Status CudaRuntime::zero(void* to, size_t bytes, StreamRef on) {
  const ContextScope scope(driver_, context_.get());
  const CUresult result = driver_.cuMemsetD8Async(address(to), 0, bytes, stream_of(on));
  if (result == CUDA_SUCCESS) return {};
  return {Driver::code_of(result),
          fmt::format("cuda: cuMemsetD8Async (to clear {} bytes at {}): {}", bytes, to,
                      driver_.error_text(result))};
}

Status CudaRuntime::launch(const Program& program, const LaunchShape& shape, const void* args,
                           size_t args_bytes, StreamRef on) {
  FA3_RETURN_IF_ERROR(check_launch(program, shape, args_bytes, static_cast<u32>(gpu_.smem_bytes)));
  const ContextScope scope(driver_, context_.get());
  const CUstream stream = stream_of(on);
  FA3_TRY(LoadedKernel* const kernel, kernels_.get(program, stream));
  if (kernel->args_bytes != args_bytes) {
    return invalid("launch of {}: args_bytes={}, need {}, the size of the kernel's argument struct",
                   program.expression, args_bytes, kernel->args_bytes);
  }
  kernels_.allow(*kernel, shape);
  const Launch launch(shape, stream);
  void* parameters[] = {const_cast<void*>(args)};  // the driver only reads it
  const CUresult result =
      driver_.cuLaunchKernelEx(&launch.config, kernel->kernel, parameters, nullptr);
  if (result == CUDA_SUCCESS) return {};
  if (result == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE) {
    return invalid(
        "launch of {}: grid {}×{}×{} of CTAs that interact (threads={}, smem_bytes={}, cluster={}) "
        "does not fit on GPU {} ({}, {} SMs) at once; launch fewer CTAs that do more each",
        program.expression, shape.grid[0], shape.grid[1], shape.grid[2], shape.threads,
        shape.smem_bytes, shape.cluster, gpu_.ordinal, gpu_.name, gpu_.sm_count);
  }
  return {Driver::code_of(result),
          fmt::format("launch of {}: cuLaunchKernelEx: {} [grid {}×{}×{}, threads {}, smem_bytes "
                      "{}, cluster {}, pdl {}, waiting {}]",
                      program.expression, driver_.error_text(result), shape.grid[0], shape.grid[1],
                      shape.grid[2], shape.threads, shape.smem_bytes, shape.cluster, shape.pdl,
                      shape.waiting)};
}

Status CudaRuntime::synchronize() {
  const ContextScope scope(driver_, context_.get());
  const CUresult result = driver_.cuStreamSynchronize(stream_);
  if (result == CUDA_SUCCESS) return {};
  return {FA3_CUDA_ERROR, fmt::format("cuda: work on GPU {} ({}) failed: {}; after a kernel's "
                                      "error start the process again",
                                      gpu_.ordinal, gpu_.name, driver_.error_text(result))};
}

Result<int> CudaRuntime::registers(const Program& program) {
  const ContextScope scope(driver_, context_.get());
  FA3_TRY(const LoadedKernel* const kernel, kernels_.get(program, stream_));
  int count = 0;
  driver_.check(
      driver_.cuKernelGetAttribute(&count, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel->kernel, gpu_.device),
      "cuKernelGetAttribute", "to count registers");
  return count;
}

void CudaRuntime::wait_for(const Event& event) {
  const ContextScope scope(driver_, context_.get());
  event.delay(stream_);
}

}  // namespace fa3::cuda
