// SPDX-License-Identifier: BSD-3-Clause
// context.h — what the opaque handles of fa3.h hold.
#pragma once

#include <memory>

#include "api/args.h"
#include "backend/backend.h"
#include "backend/cuda/jit.h"
#include "core/env.h"
#include "core/executor.h"
#include "core/log.h"
#include "core/status.h"
#include "fa3/fa3.h"

// Constant after creation; the backend guards itself.
struct fa3_context {
  const fa3::Logger logger;
  const fa3::Executor executor;

  fa3_context(const fa3::DeviceInfo& device, const fa3_context_options& options,
              const fa3::Environment& environment);

  fa3::Backend& backend() const { return *backend_; }
  const fa3::DeviceInfo& device() const { return backend_->device(); }
  // Every context can compile kernels ahead of time, also without a GPU.
  fa3::cuda::Jit& jit() { return jit_.get(); }

 private:
  fa3::cuda::LazyJit jit_;
  std::unique_ptr<fa3::Backend> backend_;
};

struct fa3_plan {
  fa3_context* context;
  fa3::Plan plan;
  fa3::Args args;  // those it was made for
};

namespace fa3 {

// The checks that begin every call on a context: a handle, and a stream only where it has streams.
Status check_call(const char* where, const fa3_context* context, const void* stream);

}  // namespace fa3
