// SPDX-License-Identifier: BSD-3-Clause
// nvml.h — what NVML, which comes with the driver, says of a GPU: versions, clock, energy. Opened
// at run time; without it versions are unknown and figures 0.
#pragma once

#include <dlfcn.h>

#include <string>

namespace fa3::measure {

inline constexpr const char* kUnknown = "unknown";

struct DriverVersions {
  std::string driver = kUnknown;  // "580.159.04", as nvidia-smi prints it
  std::string cuda = kUnknown;    // "13.0", the newest CUDA that the driver supports
};

// As the CUDA driver, which numbers GPUs as the process sees them, prints it; "" without one.
inline std::string bus_id_of(int device) {
  void* const cuda = dlopen("libcuda.so.1", RTLD_NOW);
  if (cuda == nullptr) return "";
  const auto get = reinterpret_cast<int (*)(char*, int, int)>(dlsym(cuda, "cuDeviceGetPCIBusId"));
  char id[32] = "";
  return get != nullptr && get(id, sizeof id, device) == 0 ? id : "";
}

class Nvml {
 public:
  // bus_id: of the GPU, as "0000:1b:00.0"; "" = versions only.
  explicit Nvml(const std::string& bus_id = "") : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
    const auto init = function<int()>("nvmlInit_v2");
    if (init == nullptr || init() != 0) {
      library_ = nullptr;
      return;
    }
    const auto find = function<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    if (bus_id.empty() || find == nullptr || find(bus_id.c_str(), &gpu_) != 0) gpu_ = nullptr;
    energy_ = function<int(void*, unsigned long long*)>("nvmlDeviceGetTotalEnergyConsumption");
    clock_ = function<int(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
  }

  DriverVersions versions() const {
    DriverVersions versions;
    const auto driver = function<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
    const auto cuda = function<int(int*)>("nvmlSystemGetCudaDriverVersion_v2");
    char text[96] = "";
    if (driver != nullptr && driver(text, sizeof text) == 0) versions.driver = text;
    int number = 0;  // 13000 is 13.0
    if (cuda != nullptr && cuda(&number) == 0)
      versions.cuda = std::to_string(number / 1000) + "." + std::to_string(number / 10 % 100);
    return versions;
  }
  // Since the driver was loaded. The counter moves every 20 to 100 ms.
  double joules() const {
    unsigned long long millijoules = 0;
    if (gpu_ == nullptr || energy_ == nullptr || energy_(gpu_, &millijoules) != 0) return 0;
    return static_cast<double>(millijoules) * 1e-3;
  }
  // Of the SMs, now.
  double mhz() const {
    constexpr int kSm = 1;
    unsigned mhz = 0;
    if (gpu_ == nullptr || clock_ == nullptr || clock_(gpu_, kSm, &mhz) != 0) return 0;
    return mhz;
  }

 private:
  template <class F>
  F* function(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<F*>(dlsym(library_, name));
  }

  void* library_;
  void* gpu_ = nullptr;
  int (*energy_)(void*, unsigned long long*) = nullptr;
  int (*clock_)(void*, int, unsigned*) = nullptr;
};

}  // namespace fa3::measure
