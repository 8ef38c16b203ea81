// SPDX-License-Identifier: BSD-3-Clause
// backend.h — the backend sim: the kernels of a GPU in the simulator, on memory of the host.
#pragma once

#include <memory>
#include <mutex>

#include "backend/gpu.h"
#include "backend/sim/runtime.h"
#include "core/once.h"

namespace fa3::sim {

// Kernels may touch the elements of the tensors and the plan's workspace, and nothing else. The
// simulator is opened by the first run, and runs one plan at a time.
class SimBackend final : public GpuBackend {
 public:
  SimBackend(DeviceInfo device, SimRuntime::Settings settings)
      : GpuBackend(std::move(device)), settings_(std::move(settings)) {}

  std::string explain(const Plan& plan) const override;
  Result<Plan> prepare(Plan plan, StreamRef on) override;
  Result<WorkspaceLease> workspace(size_t bytes, void* stream) override;
  Status run(const Plan& plan, const Buffers& buffers, std::byte* workspace, void* stream) override;

 protected:
  std::string why() const override;
  Result<KernelPlan> kernels(const Problem& problem) const override;

 private:
  Result<SimRuntime*> runtime();

  const SimRuntime::Settings settings_;
  Once<std::unique_ptr<SimRuntime>> runtime_;
  std::mutex mutex_;  // held during a run
  WorkspaceCache workspaces_;
};

}  // namespace fa3::sim
