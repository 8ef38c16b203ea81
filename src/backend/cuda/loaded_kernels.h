// SPDX-License-Identifier: BSD-3-Clause
// loaded_kernels.h — the programs that a GPU has loaded.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>

#include "backend/cuda/driver.h"
#include "backend/cuda/jit.h"
#include "runtime/gpu_runtime.h"

namespace fa3::cuda {

struct LoadedKernel {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  size_t args_bytes = 0;
  u32 smem_bytes = 48 * 1024;  // dynamic shared memory it may use; more must be requested
  bool large_cluster = false;  // clusters of more than 8 are allowed
};

// Safe to use from many threads. A CUDA context of the GPU is current in each call.
class LoadedKernels {
 public:
  LoadedKernels(const Driver& driver, Jit& jit, const GpuInfo& gpu)
      : driver_(driver), jit_(jit), gpu_(gpu) {}
  // Call when no kernel is running any more.
  ~LoadedKernels();
  LoadedKernels(const LoadedKernels&) = delete;
  LoadedKernels& operator=(const LoadedKernels&) = delete;

  // The program, found or compiled and loaded when it is new here. `stream` is where it will run:
  // UNSUPPORTED when a graph is being captured there and the program is new. Valid as long as this.
  Result<LoadedKernel*> get(const Program& program, CUstream stream);

  // Allows the kernel what a launch of that shape needs beyond the default.
  void allow(LoadedKernel& kernel, const LaunchShape& shape);

 private:
  using Name = std::tuple<std::string, std::string, const HeaderSet*>;  // as in Program
  using NameView = std::tuple<std::string_view, std::string_view, const HeaderSet*>;

  struct Less {
    using is_transparent = void;
    bool operator()(const NameView& a, const NameView& b) const { return a < b; }
  };

  LoadedKernel* find(const NameView& name);
  Result<LoadedKernel> load(const Program& program, const Kernel& kernel) const;

  const Driver& driver_;
  Jit& jit_;
  const GpuInfo& gpu_;
  std::mutex mutex_;
  std::map<Name, LoadedKernel, Less> kernels_;
};

}  // namespace fa3::cuda
