// SPDX-License-Identifier: BSD-3-Clause
// loaded_kernels.cpp — loads cubins into the driver, and sets what a kernel needs to be allowed.
#include "backend/cuda/loaded_kernels.h"

#include "backend/cuda/stream.h"

namespace fa3::cuda {
namespace {

constexpr u32 kPortableCluster = 8;

// Is it the image that the driver does not take? Other errors tell nothing of it: earlier work that
// failed, or no memory.
bool is_of_image(CUresult result) {
  switch (result) {
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_NOT_FOUND:
      return true;
    default:
      return false;
  }
}

}  // namespace

LoadedKernels::~LoadedKernels() {
  for (const auto& [name, kernel] : kernels_) driver_.cuLibraryUnload(kernel.library);
}

LoadedKernel* LoadedKernels::find(const NameView& name) {
  const std::lock_guard lock(mutex_);
  const auto found = kernels_.find(name);
  return found == kernels_.end() ? nullptr : &found->second;
}

// The search for the cubin is not under the lock, so that programs compile concurrently.
Result<LoadedKernel*> LoadedKernels::get(const Program& program, CUstream stream) {
  const NameView name(program.header, program.expression, program.headers);
  if (LoadedKernel* const found = find(name)) return found;
  if (capturing(driver_, stream)) {
    return unsupported(
        "launch of {}: it is not prepared, and a graph capture is no time to compile; call prepare "
        "before the capture",
        program.expression);
  }
  FA3_TRY(const Kernel kernel, jit_.get(program));
  const std::lock_guard lock(mutex_);
  const auto found = kernels_.find(name);
  if (found != kernels_.end()) return &found->second;
  FA3_TRY(const LoadedKernel loaded, load(program, kernel));
  return &(kernels_[Name(name)] = loaded);
}

Result<LoadedKernel> LoadedKernels::load(const Program& program, const Kernel& kernel) const {
  LoadedKernel loaded;
  const CUresult result = driver_.cuLibraryLoadData(&loaded.library, kernel.cubin->image.data(),
                                                    nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result != CUDA_SUCCESS && !is_of_image(result)) {
    return Status{Driver::code_of(result),
                  fmt::format("cuda: cuLibraryLoadData (to load {}): {}", program.expression,
                              driver_.error_text(result))};
  }
  if (result != CUDA_SUCCESS) {
    return Status{FA3_JIT_FAILED,
                  fmt::format("jit: the driver (CUDA {}) does not load {} (from {}): {}; update "
                              "the driver, or `fa3 jit --clear`",
                              version_text(driver_.version()), program.expression,
                              source_name(kernel.source), driver_.error_text(result))};
  }
  size_t offset = 0;
  const char* const symbol = kernel.cubin->symbol.c_str();
  if (driver_.cuLibraryGetKernel(&loaded.kernel, loaded.library, symbol) != CUDA_SUCCESS ||
      driver_.cuKernelGetParamInfo(loaded.kernel, 0, &offset, &loaded.args_bytes) != CUDA_SUCCESS) {
    driver_.cuLibraryUnload(loaded.library);
    return Status{FA3_JIT_FAILED,
                  fmt::format("jit: the cubin of {} has no kernel {} with an argument; need one "
                              "argument struct",
                              program.expression, symbol)};
  }
  return loaded;
}

void LoadedKernels::allow(LoadedKernel& kernel, const LaunchShape& shape) {
  const std::lock_guard lock(mutex_);
  const auto set = [&](CUfunction_attribute attribute, int value, const char* purpose) {
    driver_.check(driver_.cuKernelSetAttribute(attribute, value, kernel.kernel, gpu_.device),
                  "cuKernelSetAttribute", purpose);
  };
  if (shape.smem_bytes > kernel.smem_bytes) {
    set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, static_cast<int>(shape.smem_bytes),
        "to allow the launch's shared memory");
    kernel.smem_bytes = shape.smem_bytes;
  }
  if (shape.cluster > kPortableCluster && !kernel.large_cluster) {
    set(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1,
        "to allow a cluster of more than 8");
    kernel.large_cluster = true;
  }
}

}  // namespace fa3::cuda
