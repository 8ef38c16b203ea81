// SPDX-License-Identifier: BSD-3-Clause
// context.h — what the opaque handles of fa3.h hold.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "api/workspace.h"
#include "backend/cuda/jit.h"
#include "core/device.h"
#include "core/env.h"
#include "core/executor.h"
#include "core/log.h"
#include "core/status.h"
#include "fa3/fa3.h"
#include "plan/plan.h"

// All of it constant after creation but for the workspace and the kernels, which guard themselves.
struct fa3_context {
  fa3::DeviceInfo device;
  fa3::Logger logger;
  fa3::Executor executor;
  fa3::WorkspaceCache workspace;

  fa3_context(fa3::DeviceInfo info, const fa3_context_options& options,
              const fa3::Environment& environment);

  // Kernels that suit the machine's driver, if it has one. Made by the first call, since few
  // contexts need it.
  fa3::cuda::Jit& jit();

 private:
  fa3::cuda::JitOptions jit_options_;
  std::once_flag jit_once_;
  std::unique_ptr<fa3::cuda::Jit> jit_;
};

struct fa3_plan {
  const fa3_context* context;
  fa3::Plan plan;
};

namespace fa3 {

// What every call on a context begins with: a handle, and no stream, which the CPU has none of.
Status check_call(const char* where, const fa3_context* context, const void* stream);

}  // namespace fa3
