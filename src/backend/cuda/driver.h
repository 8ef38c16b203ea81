// SPDX-License-Identifier: BSD-3-Clause
// driver.h — the CUDA driver: libcuda, opened at run time and checked before use.
#pragma once

#include <string>

#include "backend/cuda/driver_api.h"
#include "core/shared_library.h"
#include "core/status.h"

namespace fa3::cuda {

// Versions as CUDA writes them: 12040 is 12.4. The oldest one that fa3 takes, and the driver
// release that introduced it.
inline constexpr int kLeastVersion = 12040;
inline constexpr const char* kLeastDriver = "550";

std::string version_text(int version);  // 12040 → "12.4"

struct DriverFunctions {
#define FA3_DECLARE(name, parameters) CUresult(*name) parameters = nullptr;
  FA3_DRIVER_FUNCTIONS(FA3_DECLARE)
#undef FA3_DECLARE
};

// What fa3 queries about a GPU before it uses it.
struct GpuInfo {
  CUdevice device = 0;
  int ordinal = 0;
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int sm_count = 0;
  int l2_bytes = 0;
  int smem_bytes = 0;  // most dynamic shared memory of a CTA
  size_t memory_bytes = 0;

  int sm() const { return 10 * major + minor; }  // as DeviceInfo::sm
};

class Driver : public DriverFunctions {
 public:
  // Opens and initialises a driver. UNSUPPORTED with the reason: no library, too old, no function,
  // cuInit's refusal.
  static Result<Driver> open(const std::string& library);
  // The machine's own, opened once per process; a refusal is remembered too.
  static Result<const Driver*> system();

  int version() const { return version_; }
  const std::string& path() const { return path_; }

  // How many GPUs there are; 0 where CUDA says that there is none. Throws as check().
  int device_count() const;
  // INVALID_ARGUMENT for an ordinal that is none, UNSUPPORTED for a GPU without kernels.
  Result<GpuInfo> gpu(int ordinal) const;

  // "CUDA_ERROR_NAME (description)".
  std::string error_text(CUresult result) const;
  // What the driver's error is to a caller: OUT_OF_MEMORY or CUDA_ERROR.
  static fa3_status code_of(CUresult result);
  // Throws Error(code_of) naming the call and what it was for, unless it succeeded.
  void check(CUresult result, const char* call, const char* purpose) const;

 private:
  Driver() = default;
  GpuInfo describe(int ordinal) const;

  int version_ = 0;
  std::string path_;
};

}  // namespace fa3::cuda
