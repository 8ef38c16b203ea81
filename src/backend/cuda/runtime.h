// SPDX-License-Identifier: BSD-3-Clause
// runtime.h — GpuRuntime of a GPU, through the CUDA driver; other code in the process may
// use the GPU as well.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "backend/cuda/driver.h"
#include "backend/cuda/jit.h"
#include "backend/cuda/loaded_kernels.h"
#include "backend/cuda/stream.h"
#include "runtime/gpu_runtime.h"

namespace fa3::cuda {

// Safe to use from many threads; work goes to the stream in the order of the calls.
class CudaRuntime final : public GpuRuntime {
 public:
  // Works in Context::of(the GPU). `stream` belongs to that context and outlives the runtime; null
  // = a stream of the runtime's own. UNSUPPORTED, INVALID_ARGUMENT as of Driver::gpu.
  static Result<std::unique_ptr<CudaRuntime>> open(const Driver& driver, Jit& jit, int device,
                                                   CUstream stream = nullptr);
  // Waits for the work on its stream and frees what it has allocated.
  ~CudaRuntime() override;
  CudaRuntime(const CudaRuntime&) = delete;
  CudaRuntime& operator=(const CudaRuntime&) = delete;

  std::string name() const override { return gpu_.name; }
  const GpuInfo& gpu() const { return gpu_; }
  CUstream stream() const { return stream_; }

  void* allocate(size_t bytes, const char* name) override;
  void release(void* pointer) override;
  void upload(void* to, const void* from, size_t bytes) override;
  void download(void* to, const void* from, size_t bytes) override;
  // Copies what is there after the stream's work, and waits for that. UNSUPPORTED while a graph is
  // being captured on it.
  Status download(void* to, const void* from, size_t bytes, StreamRef on);
  Result<TensorMap> encode(const TensorMapSpec& spec) override;

  // UNSUPPORTED when a program that was not prepared meets a stream under graph capture.
  using GpuRuntime::prepare;
  Status prepare(const Program& program, StreamRef on) override;
  Status zero(void* to, size_t bytes, StreamRef on) override;
  Status fill(void* to, uint32_t word, size_t count, size_t apart, StreamRef on) override;
  using GpuRuntime::launch;  // UNSUPPORTED as prepare
  Status launch(const Program& program, const LaunchShape& shape, const void* args,
                size_t args_bytes, StreamRef on) override;
  Status synchronize() override;

  // Registers per thread of a program.
  Result<int> registers(const Program& program);

  // Is a graph being captured there?
  bool captures(StreamRef on) const;

  Event record() const { return {driver_, context_.get(), stream_}; }
  void wait_for(const Event& event);  // later work here waits; the event may be another runtime's

 private:
  CudaRuntime(const Driver& driver, Jit& jit, GpuInfo gpu, CUstream stream);
  CUstream stream_of(StreamRef on) const {
    return on.own ? stream_ : static_cast<CUstream>(on.stream);
  }
  void copied(CUresult result, const char* call, const char* purpose) const;

  const Driver& driver_;
  GpuInfo gpu_;
  Context context_;
  CUstream stream_;
  bool own_stream_;
  LoadedKernels kernels_;
  std::mutex mutex_;
  std::map<void*, std::string> allocations_;  // names
};

}  // namespace fa3::cuda
