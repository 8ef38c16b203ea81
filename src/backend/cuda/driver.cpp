// SPDX-License-Identifier: BSD-3-Clause
// driver.cpp — loads libcuda, checks its version and asks what the GPUs are.
#include "backend/cuda/driver.h"

#include "plan/plan.h"

namespace fa3::cuda {
namespace {

constexpr const char* kSystemLibrary = "libcuda.so.1";

int attribute(const Driver& driver, CUdevice_attribute which, CUdevice device) {
  int value = 0;
  driver.check(driver.cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute",
               "to read a property of the GPU");
  return value;
}

Status find_functions(const SharedLibrary& library, DriverFunctions& functions) {
#define FA3_FIND(name, parameters)                                        \
  {                                                                       \
    FA3_TRY(void* const address, library.find(#name));                    \
    functions.name = reinterpret_cast<decltype(functions.name)>(address); \
  }
  FA3_DRIVER_FUNCTIONS(FA3_FIND)
#undef FA3_FIND
  return {};
}

// Checked before the other functions are looked up: an old driver lacks some of them.
Result<int> checked_version(const SharedLibrary& library) {
  FA3_TRY(void* const address, library.find("cuDriverGetVersion"));
  int version = 0;
  const CUresult result = reinterpret_cast<CUresult (*)(int*)>(address)(&version);
  if (result != CUDA_SUCCESS) {
    return unsupported("cuda: {} does not tell its version (error {}); reinstall the NVIDIA driver",
                       library.path(), result);
  }
  if (version < kLeastVersion) {
    return unsupported(
        "cuda: the NVIDIA driver ({}) offers CUDA {}, need {} or newer; install driver {} or newer",
        library.path(), version_text(version), version_text(kLeastVersion), kLeastDriver);
  }
  return version;
}

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Result<Driver> Driver::open(const std::string& name) {
  const Result<SharedLibrary> library = SharedLibrary::open(name);
  if (!library.ok()) {
    return unsupported("cuda: no NVIDIA driver: {}; install driver {} or newer",
                       library.status().message, kLeastDriver);
  }
  Driver driver;
  driver.path_ = library.value().path();
  FA3_TRY(driver.version_, checked_version(library.value()));
  const Status found = find_functions(library.value(), driver);
  if (!found.ok()) {
    return unsupported("cuda: the NVIDIA driver is incomplete: {}; install driver {} or newer",
                       found.message, kLeastDriver);
  }
  const CUresult result = driver.cuInit(0);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) driver.check(result, "cuInit", "to start the driver");
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NO_DEVICE) {
    return unsupported("cuda: the NVIDIA driver does not start: cuInit: {}; see `nvidia-smi`",
                       driver.error_text(result));
  }
  return driver;
}

Result<const Driver*> Driver::system() {
  static const Result<Driver> driver = open(kSystemLibrary);
  if (!driver.ok()) return driver.status();
  return &driver.value();
}

int Driver::device_count() const {
  int count = 0;
  const CUresult result = cuDeviceGetCount(&count);
  if (result == CUDA_ERROR_NO_DEVICE) return 0;
  check(result, "cuDeviceGetCount", "to count the GPUs");
  return count;
}

GpuInfo Driver::describe(int ordinal) const {
  GpuInfo info;
  info.ordinal = ordinal;
  check(cuDeviceGet(&info.device, ordinal), "cuDeviceGet", "to open the GPU");
  char name[256] = "";
  check(cuDeviceGetName(name, sizeof name, info.device), "cuDeviceGetName", "to name the GPU");
  info.name = name;
  info.major = attribute(*this, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, info.device);
  info.minor = attribute(*this, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, info.device);
  info.sm_count = attribute(*this, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, info.device);
  info.l2_bytes = attribute(*this, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, info.device);
  info.smem_bytes =
      attribute(*this, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, info.device);
  check(cuDeviceTotalMem_v2(&info.memory_bytes, info.device), "cuDeviceTotalMem",
        "to read the GPU's memory");
  return info;
}

Result<GpuInfo> Driver::gpu(int ordinal) const {
  const int count = device_count();
  if (count == 0) {
    return unsupported("cuda: the NVIDIA driver sees no GPU; need compute capability {}",
                       gpus_with_kernels());
  }
  if (ordinal < 0 || ordinal >= count) {
    return invalid("cuda: GPU {} is none, need 0…{}; see `nvidia-smi -L`", ordinal, count - 1);
  }
  const GpuInfo info = describe(ordinal);
  if (!has_kernels(info.sm())) {
    return unsupported(
        "cuda: GPU {} ({}) has compute capability {}.{}, need {}; use another GPU or the cpu "
        "backend",
        ordinal, info.name, info.major, info.minor, gpus_with_kernels());
  }
  return info;
}

std::string Driver::error_text(CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) {
    return fmt::format("error {}", result);
  }
  const bool described = cuGetErrorString(result, &text) == CUDA_SUCCESS && text != nullptr;
  return fmt::format("{} ({})", name, described ? text : "no description");
}

fa3_status Driver::code_of(CUresult result) {
  return result == CUDA_ERROR_OUT_OF_MEMORY ? FA3_OUT_OF_MEMORY : FA3_CUDA_ERROR;
}

void Driver::check(CUresult result, const char* call, const char* purpose) const {
  if (result == CUDA_SUCCESS) return;
  throw Error(code_of(result), fmt::format("cuda: {} ({}): {}", call, purpose, error_text(result)));
}

}  // namespace fa3::cuda
