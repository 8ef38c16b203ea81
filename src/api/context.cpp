// SPDX-License-Identifier: BSD-3-Clause
// context.cpp — fa3_context_create: options and environment → executor and backend.
#include "api/context.h"

#include <memory>

#include "api/args.h"
#include "api/boundary.h"
#include "backend/open.h"
#include "core/env.h"
#include "core/status.h"

namespace fa3 {
namespace {

constexpr size_t kContextOptionsFirstSize = 88;  // in the first release; never changes
static_assert(sizeof(fa3_context_options) >= kContextOptionsFirstSize,
              "fields are only ever appended");

Status check_device_and_backend(const fa3_context_options& options) {
  switch (options.device_type) {
    case FA3_DEVICE_DEFAULT:
    case FA3_DEVICE_CPU:
      break;
    case FA3_DEVICE_CUDA:
      if (options.backend == FA3_BACKEND_AUTO || options.backend == FA3_BACKEND_CUDA) return {};
      return invalid(
          "context: backend={} ({}) with device_type=FA3_DEVICE_CUDA, need FA3_BACKEND_AUTO (0) or "
          "FA3_BACKEND_CUDA (3): only GPUs reach GPU memory",
          options.backend, backend_name(fa3_backend(options.backend)));
    default:
      return invalid(
          "context: device_type={} is unknown; need FA3_DEVICE_CPU (1), FA3_DEVICE_CUDA (2), or 0 "
          "for the default",
          options.device_type);
  }
  if (options.device_id != 0) {
    return invalid("context: device_id={}, need 0: there is one CPU device", options.device_id);
  }
  switch (options.backend) {
    case FA3_BACKEND_AUTO:
    case FA3_BACKEND_CPU:
    case FA3_BACKEND_REFERENCE:
    case FA3_BACKEND_SIM:
      return {};
    case FA3_BACKEND_CUDA:
      return invalid(
          "context: backend=FA3_BACKEND_CUDA (3) with a CPU device, need "
          "device_type=FA3_DEVICE_CUDA (2): a GPU does not read host memory");
    default:
      return invalid(
          "context: backend={} is unknown; need FA3_BACKEND_AUTO (0), FA3_BACKEND_CPU (1), "
          "FA3_BACKEND_REFERENCE (2), FA3_BACKEND_CUDA (3) or FA3_BACKEND_SIM (4)",
          options.backend);
  }
}

// The kernels that a process runs must not depend on its working directory.
Status check_path(const char* option, const char* path) {
  if (path == nullptr || path[0] == '/') return {};
  return invalid("context: {}='{}', need an absolute path, or NULL for the default", option, path);
}

Status check_options(const fa3_context_options& options) {
  FA3_RETURN_IF_ERROR(check_device_and_backend(options));
  if (options.num_threads < 0 || options.num_threads > kMaxThreads) {
    return invalid("context: num_threads={}, need 1…{}, or 0 for the default", options.num_threads,
                   kMaxThreads);
  }
  if (options.log_level < 0 || options.log_level > FA3_LOG_DEBUG) {
    return invalid(
        "context: log_level={} is unknown; need FA3_LOG_ERROR (1)…FA3_LOG_DEBUG (4), or 0 for the "
        "default",
        options.log_level);
  }
  if (options.kernel_source != FA3_KERNELS_ANY && options.kernel_source != FA3_KERNELS_PACKED) {
    return invalid(
        "context: kernel_source={} is unknown; need FA3_KERNELS_ANY (0) or FA3_KERNELS_PACKED (1)",
        options.kernel_source);
  }
  FA3_RETURN_IF_ERROR(check_path("cache_dir", options.cache_dir));
  return check_path("kernel_pack", options.kernel_pack);
}

std::string default_cache_dir(const Environment& environment) {
  if (!environment.cache_dir.empty()) return environment.cache_dir;
  const std::string folder = user_cache_folder();
  return folder.empty() ? "" : folder + "/fa3";
}

Logger logger_of(const fa3_context_options& options) {
  const bool chosen = options.log_level != 0;
  return {options.log, options.log_user,
          chosen ? fa3_log_level(options.log_level) : FA3_LOG_WARNING};
}

Status create(const fa3_context_options* given, fa3_context** context) {
  if (context == nullptr)
    return invalid("context: the place for the handle is NULL; pass its address");
  *context = nullptr;
  fa3_context_options options{};
  if (given != nullptr) {
    FA3_RETURN_IF_ERROR(
        read_struct("context: options", given, kContextOptionsFirstSize, &options, sizeof options));
  }
  FA3_RETURN_IF_ERROR(check_options(options));
  FA3_TRY(const Environment environment, read_environment());
  FA3_TRY(const DeviceInfo device, choose_device(options, environment, logger_of(options)));
  auto opened = std::make_unique<fa3_context>(device, options, environment);
  opened->logger.log(FA3_LOG_INFO, "context: backend {}, {} threads, {}, {}",
                     backend_name(device.backend), device.threads, isa_name(device.isa),
                     device.name);
  *context = opened.release();
  return {};
}

}  // namespace

Status check_call(const char* where, const fa3_context* context, const void* stream) {
  if (context == nullptr) {
    return invalid("{}: context is NULL; open one with fa3_context_create", where);
  }
  if (stream != nullptr && context->device().type != FA3_DEVICE_CUDA) {
    return invalid("{}: stream={} with a CPU context, which has no streams; need NULL", where,
                   stream);
  }
  return {};
}

}  // namespace fa3

namespace {

fa3::cuda::JitOptions jit_options(const fa3_context_options& options,
                                  const fa3::Environment& environment, const fa3::Logger& logger) {
  fa3::cuda::JitOptions jit;
  jit.cache_dir =
      options.cache_dir != nullptr ? options.cache_dir : fa3::default_cache_dir(environment);
  jit.kernel_pack = options.kernel_pack != nullptr ? options.kernel_pack : environment.kernel_pack;
  jit.nvrtc = environment.nvrtc;
  jit.bundled_only = options.kernel_source == FA3_KERNELS_PACKED;
  jit.logger = logger;
  return jit;
}

}  // namespace

fa3_context::fa3_context(const fa3::DeviceInfo& device, const fa3_context_options& options,
                         const fa3::Environment& environment)
    : logger(fa3::logger_of(options)),
      executor(device.threads, options.parallel_for, options.parallel_for_user, options.progress,
               options.progress_user),
      jit_(jit_options(options, environment, logger)),
      backend_(fa3::make_backend(device, environment, executor, logger, jit_)) {}

fa3_status fa3_context_create(const fa3_context_options* options, fa3_context** context) {
  return FA3_BOUNDARY({ return fa3::create(options, context); });
}

void fa3_context_destroy(fa3_context* context) { delete context; }
