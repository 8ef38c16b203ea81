// SPDX-License-Identifier: BSD-3-Clause
// device.cpp — what the host is: the processor's name, caches, memory and the cores allowed to the
// process.
#include "core/device.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <thread>

namespace fa3 {
namespace {

// A value of sysconf; 0 where the system does not know.
int64_t system_value(int name) { return std::max<int64_t>(0, sysconf(name)); }

// "model name" of Linux' processor list; "" where there is none (Arm gives numbers only).
std::string processor_name() {
  char text[4096];  // more than the list has of its first processor
  const int file = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  const ssize_t size = read(file, text, sizeof text);
  close(file);
  constexpr std::string_view kField = "\nmodel name";
  std::string_view list(text, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  const size_t field = list.find(kField);
  if (field == std::string_view::npos) return "";
  list.remove_prefix(field + kField.size());
  list = list.substr(0, list.find('\n'));
  const size_t colon = list.find(": ");
  return colon == std::string_view::npos ? "" : std::string(list.substr(colon + 2));
}

int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // With more than CPU_SETSIZE (1024) processors the call fails: then every processor counts as
  // allowed.
  const int cores = sched_getaffinity(0, sizeof set, &set) == 0
                        ? CPU_COUNT(&set)
                        : static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(cores, 1, kMaxThreads);
}

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kSse4:
      return "sse4";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx3:
      return "avx3";
    case Isa::kAvx3Bf16:
      return "avx3_bf16";
    case Isa::kNeon:
      return "neon";
  }
  return "unknown";
}

const char* backend_name(fa3_backend backend) {
  switch (backend) {
    case FA3_BACKEND_AUTO:
      return "auto";
    case FA3_BACKEND_CPU:
      return "cpu";
    case FA3_BACKEND_REFERENCE:
      return "reference";
    case FA3_BACKEND_CUDA:
      return "cuda";
    case FA3_BACKEND_SIM:
      return "sim";
  }
  return "unknown";
}

DeviceInfo host_device() {
  DeviceInfo device;
  device.threads = allowed_cores();
  device.name = processor_name();
  if (device.name.empty()) device.name = "CPU";
#ifdef _SC_LEVEL1_DCACHE_SIZE
  device.l1_bytes = system_value(_SC_LEVEL1_DCACHE_SIZE);
  device.l2_bytes = system_value(_SC_LEVEL2_CACHE_SIZE);
#endif
  device.memory_bytes = system_value(_SC_PHYS_PAGES) * system_value(_SC_PAGESIZE);
  return device;
}

}  // namespace fa3
