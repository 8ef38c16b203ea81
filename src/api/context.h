// SPDX-License-Identifier: BSD-3-Clause
// context.h — what the opaque handles of fa3.h hold.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "api/args.h"
#include "api/workspace.h"
#include "backend/cuda/jit.h"
#include "backend/machine.h"
#include "core/device.h"
#include "core/env.h"
#include "core/executor.h"
#include "core/log.h"
#include "core/once.h"
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

  bool has_machine() const {
    return device.backend == FA3_BACKEND_CUDA || device.backend == FA3_BACKEND_SIM;
  }
  // Of backends cuda and sim, opened by the first call: the GPU, or a simulated one, which runs
  // one kernel at a time.
  fa3::Result<fa3::Machine*> machine();
  std::mutex& machine_mutex() { return machine_mutex_; }

  // Finds or compiles what a plan runs, so that a run on that stream does neither. Where nothing
  // compiles and the kernel is nowhere, the plan gets its table row's wider one, if that is there.
  fa3::Status prepare(fa3::Plan& plan, fa3::StreamRef on = {});
  // What a backend asks of a run's buffers beside what all do: addresses that TMA can take. With
  // FA3_CHECK=1 on a GPU it also waits for the stream, reads cu_seqlens and seqused and checks them
  // as backends of the host always do.
  fa3::Status check_buffers(const fa3::Plan& plan, const fa3::Buffers& buffers, void* stream);
  // A run of a plan on this context's backend.
  fa3::Status run(const fa3::Plan& plan, const fa3::Buffers& buffers, std::byte* workspace,
                  void* stream);
  // Memory of the GPU for the one-call functions on a stream: one workspace per stream, kept.
  fa3::Result<std::byte*> gpu_workspace(void* stream, size_t bytes);

 private:
  std::string sim_trace_;
  uint64_t sim_seed_;
  bool check_values_;
  fa3::cuda::JitOptions jit_options_;
  fa3::Once<std::unique_ptr<fa3::cuda::Jit>> jit_;
  fa3::Once<std::unique_ptr<fa3::Machine>> machine_;
  std::mutex machine_mutex_;
  struct GpuWorkspace {
    void* data = nullptr;
    size_t bytes = 0;
  };
  std::map<void*, GpuWorkspace> gpu_workspaces_;  // by stream; guarded by machine_mutex_
  std::set<std::string> missing_kernels_;         // that wider ones stand for; guarded likewise
};

struct fa3_plan {
  fa3_context* context;
  fa3::Plan plan;
  fa3::Args args;  // that it was made for
};

namespace fa3 {

// What every call on a context begins with: a handle, and a stream only where there are any.
Status check_call(const char* where, const fa3_context* context, const void* stream);

}  // namespace fa3
