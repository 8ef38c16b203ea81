// SPDX-License-Identifier: BSD-3-Clause
// readiness.cpp — queries driver, GPUs and compiler in turn.
#include "backend/cuda/readiness.h"

#include "backend/cuda/nvrtc.h"

namespace fa3::cuda {
namespace {

Result<std::string> examine(const std::string& nvrtc_path) {
  FA3_TRY(const Driver* const driver, Driver::system());
  FA3_TRY(const GpuInfo gpu, first_gpu(*driver));
  FA3_TRY(const Nvrtc nvrtc,
          find_nvrtc(nvrtc_path.empty() ? nvrtc_places() : std::vector<std::string>{nvrtc_path},
                     driver->version()));
  return fmt::format("GPU {} ({}), driver with CUDA {}, NVRTC {} ({})", gpu.ordinal, gpu.name,
                     version_text(driver->version()), version_text(nvrtc.version()), nvrtc.path());
}

}  // namespace

Result<GpuInfo> first_gpu(const Driver& driver) {
  Result<GpuInfo> gpu = driver.gpu(0);
  const int count = driver.device_count();
  for (int ordinal = 1; ordinal < count && !gpu.ok(); ++ordinal) gpu = driver.gpu(ordinal);
  return gpu;
}

Readiness readiness(const std::string& nvrtc) {
  try {
    const Result<std::string> found = examine(nvrtc);
    return found.ok() ? Readiness{true, found.value()} : Readiness{false, found.status().message};
  } catch (const Error& error) {  // a driver that fails when it is asked
    return {false, error.what()};
  }
}

}  // namespace fa3::cuda
