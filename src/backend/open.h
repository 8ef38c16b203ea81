// SPDX-License-Identifier: BSD-3-Clause
// open.h — the factory of backends: the only place that tells them apart.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cuda/jit.h"
#include "core/env.h"
#include "core/executor.h"
#include "core/log.h"
#include "core/status.h"
#include "fa3/fa3.h"

namespace fa3 {

// The device of a context with these options, its backend chosen; the options alone were checked
// before. UNSUPPORTED with the reason where the device or the backend is missing.
Result<DeviceInfo> choose_device(const fa3_context_options& options, const Environment& environment,
                                 const Logger& logger);

// The backend of such a device. Objects passed by reference must outlive it.
std::unique_ptr<Backend> make_backend(const DeviceInfo& device, const Environment& environment,
                                      const Executor& executor, const Logger& logger,
                                      cuda::LazyJit& jit);

}  // namespace fa3
