// SPDX-License-Identifier: BSD-3-Clause
// open.cpp — options and environment → device and backend.
#include "backend/open.h"

#include "backend/cpu/backend.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels.h"
#include "backend/cuda/backend.h"
#include "backend/cuda/driver.h"
#include "backend/sim/backend.h"
#include "backend/tuning_file.h"

namespace fa3 {
namespace {

// What a GPU is to a plan.
Result<DeviceInfo> gpu_device(int ordinal) {
  FA3_TRY(const cuda::Driver* const driver, cuda::Driver::system());
  FA3_TRY(const cuda::GpuInfo gpu, driver->gpu(ordinal));
  DeviceInfo device;
  device.type = FA3_DEVICE_CUDA;
  device.id = ordinal;
  device.backend = FA3_BACKEND_CUDA;
  device.sm = gpu.sm();
  device.multiprocessors = gpu.sm_count;
  device.l2_bytes = gpu.l2_bytes;
  device.memory_bytes = static_cast<int64_t>(gpu.memory_bytes);
  device.name = gpu.name;
  return device;
}

}  // namespace

Result<DeviceInfo> choose_device(const fa3_context_options& options, const Environment& environment,
                                 const Logger& logger) {
  const auto set_threads = [&](DeviceInfo& device) {
    if (environment.num_threads > 0) device.threads = environment.num_threads;
    if (options.num_threads > 0) device.threads = options.num_threads;
  };
  if (options.device_type == FA3_DEVICE_CUDA) {
    FA3_TRY(DeviceInfo device, gpu_device(options.device_id));
    device.threads = host_device().threads;  // that compile kernels
    set_threads(device);
    device.backend_chosen = options.backend != FA3_BACKEND_AUTO;
    if (!environment.tuning.empty()) {
      FA3_TRY(device.tuning, read_tuning(environment.tuning, device.name, logger));
    }
    return device;
  }
  DeviceInfo device = host_device();
  if (options.backend == FA3_BACKEND_SIM) {
    FA3_RETURN_IF_ERROR(sim::load_simulator().status());
    device.sm = 90;
    device.multiprocessors = static_cast<int>(sim::SimRuntime::Settings{}.sms);
    if (!environment.tuning.empty()) {
      FA3_TRY(device.tuning, read_tuning(environment.tuning, "", logger));
    }
  }
  device.backend_chosen = options.backend != FA3_BACKEND_AUTO;
  device.backend = device.backend_chosen ? fa3_backend(options.backend) : FA3_BACKEND_CPU;
  set_threads(device);
  FA3_TRY(device.isa, cpu::choose_isa(environment.simd));
  device.lanes = cpu::kernels(device.isa, FA3_F32).lanes;
  return device;
}

std::unique_ptr<Backend> make_backend(const DeviceInfo& device, const Environment& environment,
                                      const Executor& executor, const Logger& logger,
                                      cuda::LazyJit& jit) {
  switch (device.backend) {
    case FA3_BACKEND_AUTO:  // choose_device has resolved it
    case FA3_BACKEND_CPU:
      return std::make_unique<CpuBackend>(device, executor);
    case FA3_BACKEND_REFERENCE:
      return std::make_unique<ReferenceBackend>(device, executor);
    case FA3_BACKEND_CUDA:
      return std::make_unique<cuda::CudaBackend>(device, jit, logger, environment.check);
    case FA3_BACKEND_SIM: {
      sim::SimRuntime::Settings settings;
      settings.workers = static_cast<u32>(device.threads);
      settings.trace_path = environment.sim_trace;
      settings.seed = environment.sim_seed;
      return std::make_unique<sim::SimBackend>(device, std::move(settings));
    }
  }
  throw Error(FA3_INTERNAL, fmt::format("context: backend {} is none; please report it",
                                        static_cast<int>(device.backend)));
}

}  // namespace fa3
