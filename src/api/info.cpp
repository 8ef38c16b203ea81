// SPDX-License-Identifier: BSD-3-Clause
// info.cpp — what the library says about itself: device, version, build, environment.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "api/args.h"
#include "api/boundary.h"
#include "api/context.h"
#include "backend/cuda/readiness.h"
#include "backend/sim/runtime.h"
#include "core/env.h"
#include "core/json.h"

namespace fa3 {
namespace {

constexpr size_t kDeviceInfoFirstSize = 208;  // in the first release; never changes
static_assert(sizeof(fa3_device_info) >= kDeviceInfoFirstSize, "fields are only ever appended");

template <size_t N>
void copy_text(char (&to)[N], const std::string& from) {
  const size_t size = std::min(from.size(), N - 1);
  std::memcpy(to, from.data(), size);
  to[size] = '\0';
}

Status get_device_info(const fa3_context* context, fa3_device_info* info) {
  if (context == nullptr)
    return invalid("device_info: context is NULL; open one with fa3_context_create");
  if (info == nullptr) return invalid("device_info: info is NULL; pass its address");
  const size_t size = info->struct_size;
  if (size < kDeviceInfoFirstSize) {
    return invalid(
        "device_info: struct_size={} is that of no release, need at least {}; set it to sizeof of "
        "the struct",
        size, kDeviceInfoFirstSize);
  }
  const DeviceInfo& device = context->device();
  fa3_device_info out{};
  out.struct_size = size;
  out.device_type = device.type;
  out.device_id = device.id;
  out.backend = device.backend;
  out.num_threads = device.threads;
  out.l1_bytes = device.l1_bytes;
  out.l2_bytes = device.l2_bytes;
  out.memory_bytes = device.memory_bytes;
  copy_text(out.name, device.name);
  copy_text(out.instruction_set, isa_name(device.isa));
  std::memcpy(info, &out, std::min(size, sizeof out));
  return {};
}

Json backend(fa3_backend id, bool usable, const std::string& why) {
  Json row;
  row["name"] = backend_name(id);
  row["usable"] = usable;
  row["why"] = why;
  return row;
}

// What this machine has for the cuda backend, or what is missing.
Json cuda_backend() {
  const Result<Environment> environment = read_environment();
  const cuda::Readiness readiness =
      cuda::readiness(environment.ok() ? environment.value().nvrtc : "");
  return backend(FA3_BACKEND_CUDA, readiness.ready,
                 readiness.ready ? "forward in f16 and bf16; " + readiness.text : readiness.text);
}

Json sim_backend() {
  const auto simulator = sim::load_simulator();
  return backend(FA3_BACKEND_SIM, simulator.ok(),
                 simulator.ok() ? "the kernels of cuda on a simulated GPU, for checking"
                                : simulator.status().message);
}

std::string build_info() {
#if defined(__clang__)
  const std::string compiler = "clang " __clang_version__;
#else
  const std::string compiler = "gcc " __VERSION__;
#endif
#if defined(__x86_64__)
  constexpr const char* kIsas[] = {"scalar", "sse4", "avx2", "avx3", "avx3_bf16"};
#elif defined(__aarch64__)
  constexpr const char* kIsas[] = {"neon"};
#else
  constexpr const char* kIsas[] = {"scalar"};
#endif
  Json build;
  build["version"] = FA3_BUILD_VERSION;
  build["compiler"] = compiler;
  build["build_type"] = FA3_BUILD_TYPE;
  for (const char* isa : kIsas) build["instruction_sets"].push_back(isa);
  Json& backends = build["backends"];
  backends.push_back(backend(FA3_BACKEND_CPU, true, "tiled kernels for host memory"));
  backends.push_back(
      backend(FA3_BACKEND_REFERENCE, true, "plain loops in FP64 for host memory, for checking"));
  backends.push_back(cuda_backend());
  backends.push_back(sim_backend());
  return build.dump();
}

std::string environment() {
  Json rows = Json::array();
  for (const EnvironmentVariable& variable : environment_variables()) {
    Json row;
    row["name"] = variable.name;
    row["value"] = variable.value ? Json(*variable.value) : Json();
    row["default"] = variable.default_value;
    row["meaning"] = variable.meaning;
    rows.push_back(std::move(row));
  }
  return rows.dump();
}

}  // namespace
}  // namespace fa3

fa3_status fa3_get_device_info(const fa3_context* context, fa3_device_info* info) {
  return FA3_BOUNDARY({ return fa3::get_device_info(context, info); });
}

const char* fa3_version(void) { return FA3_BUILD_VERSION; }

// These two never fail for the caller: out of memory they return an empty document.
const char* fa3_build_info(void) {
  try {
    static const std::string text = fa3::build_info();
    return text.c_str();
  } catch (...) {
    return "{}";
  }
}

const char* fa3_environment(void) {
  try {
    return fa3::keep_text(fa3::Text::kEnvironment, fa3::environment());
  } catch (...) {
    return "[]";
  }
}
