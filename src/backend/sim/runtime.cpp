// SPDX-License-Identifier: BSD-3-Clause
// runtime.cpp — memory, launches and errors between libfa3 and the simulator's library.
#include "backend/sim/runtime.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/shared_library.h"
#include "runtime/launch_shape.h"
#include "runtime/sim_api.h"

namespace fa3::sim {
namespace {

constexpr const char* kLibrary = "libfa3_sim.so";
constexpr size_t kAlignment = 256;  // as cudaMalloc

Result<const SimApi*> load() {
  const Result<SharedLibrary> library = SharedLibrary::open_beside(kLibrary);
  if (!library.ok()) {
    return unsupported("simulator: {} could not be opened ({}); build it with `make sim`", kLibrary,
                       library.status().message);
  }
  FA3_TRY(void* const entry, library.value().find("fa3_sim_api"));
  const SimApi* api = reinterpret_cast<const SimApi* (*)()>(entry)();
  if (std::strcmp(api->version, FA3_BUILD_VERSION) != 0) {
    return unsupported("simulator: {} is of version {}, this library of {}; build both together",
                       library.value().path(), api->version, FA3_BUILD_VERSION);
  }
  return api;
}

// Can an event log be written? Checked before the simulation, which may take hours.
Status check_trace(const std::string& path) {
  if (path.empty() || std::ofstream(path, std::ios::app)) return {};
  return {FA3_IO_ERROR,
          fmt::format("simulator: event log {}: cannot be written: {}; name a file that can in "
                      "FA3_SIM_TRACE, or unset it",
                      path, std::strerror(errno))};
}

}  // namespace

Result<const SimApi*> load_simulator() {
  static const Result<const SimApi*> loaded = load();
  return loaded;
}

Result<std::unique_ptr<SimRuntime>> SimRuntime::open(const Settings& settings) {
  FA3_TRY(const SimApi* const api, load_simulator());
  FA3_RETURN_IF_ERROR(check_trace(settings.trace_path));
  const SimSettings given{settings.seed, settings.workers, settings.sms, settings.exact_sums,
                          settings.trace_path.empty() ? nullptr : settings.trace_path.c_str()};
  void* device = api->create(&given);
  if (device == nullptr) return Status{FA3_OUT_OF_MEMORY, "simulator: no memory for a device"};
  return std::unique_ptr<SimRuntime>(new SimRuntime(*api, device));
}

SimRuntime::~SimRuntime() { api_.destroy(device_); }

void SimRuntime::set_seed(u64 seed) { api_.seed(device_, seed); }

void SimRuntime::add(void* base, size_t bytes, const char* name, bool read_only) {
  fa3_status code = FA3_OK;
  if (const char* why = api_.add(device_, base, bytes, name, read_only, &code))
    throw Error(code, fmt::format("simulator: {}", why));
}

void SimRuntime::remove(void* base) { api_.remove(device_, base); }

void* SimRuntime::allocate(size_t bytes, const char* name) {
  // Fresh memory holds NaNs in every type, and its end is not aligned more than asked for.
  auto storage = std::make_unique<std::byte[]>(bytes + kAlignment);
  const auto address = reinterpret_cast<uintptr_t>(storage.get());
  void* pointer = reinterpret_cast<void*>((address + kAlignment - 1) / kAlignment * kAlignment);
  std::memset(pointer, 0xFF, bytes);
  const std::lock_guard lock(mutex_);
  const auto place = allocations_.emplace(pointer, std::move(storage)).first;
  try {
    add(pointer, bytes, name);
  } catch (...) {
    allocations_.erase(place);
    throw;
  }
  return pointer;
}

void SimRuntime::release(void* pointer) {
  if (pointer == nullptr) return;
  const std::lock_guard lock(mutex_);
  if (allocations_.count(pointer) == 0)
    throw Error(FA3_INVALID_ARGUMENT, "simulator: release of memory that it did not allocate");
  remove(pointer);
  allocations_.erase(pointer);
}

void SimRuntime::upload(void* to, const void* from, size_t bytes) {
  api_.settle(device_);
  std::memcpy(to, from, bytes);
}

void SimRuntime::download(void* to, const void* from, size_t bytes) {
  api_.settle(device_);
  std::memcpy(to, from, bytes);
}

Result<TensorMap> SimRuntime::encode(const TensorMapSpec& spec) {
  TensorMap map;
  if (const char* why = api_.encode(&spec, &map)) return Status{FA3_INVALID_ARGUMENT, why};
  return map;
}

Status SimRuntime::prepare(const Program& program, StreamRef) {
  bool has = false;
  fa3_status code = FA3_OK;
  if (const char* why = api_.has_program(program.expression.c_str(), &has, &code))
    return {code, why};
  if (has) return {};
  return unsupported(
      "simulator: {} was not compiled into {}; programs are listed in src/sim/programs",
      program.expression, kLibrary);
}

Status SimRuntime::zero(void* to, size_t bytes, StreamRef) {
  api_.settle(device_);
  std::memset(to, 0, bytes);
  return {};
}

Status SimRuntime::fill(void* to, uint32_t word, size_t count, size_t apart, StreamRef) {
  api_.settle(device_);
  for (size_t i = 0; i < count; ++i)
    std::memcpy(static_cast<std::byte*>(to) + i * apart, &word, sizeof word);
  return {};
}

Status SimRuntime::launch(const Program& program, const LaunchShape& shape, const void* args,
                          size_t args_bytes, StreamRef) {
  FA3_RETURN_IF_ERROR(check_launch(program, shape, args_bytes));
  fa3_status code = FA3_OK;
  if (const char* why = api_.launch(device_, program.expression.c_str(), &shape, args, &code))
    return {code, why};
  return {};
}

Status SimRuntime::synchronize() {
  api_.settle(device_);
  return {};
}

}  // namespace fa3::sim
