// SPDX-License-Identifier: BSD-3-Clause
// backend.h — the backends that compute on the processor: cpu, and reference to check it against.
#pragma once

#include "backend/backend.h"
#include "core/executor.h"

namespace fa3 {

// What both share: workspaces, and the output rows that kernels do not write.
class HostBackend : public Backend {
 public:
  // executor outlives it.
  HostBackend(DeviceInfo device, const Executor& executor)
      : Backend(std::move(device)), executor_(executor) {}

  std::string explain(const Plan& plan) const override;
  Result<WorkspaceLease> workspace(size_t bytes, void* stream) override;
  Status run(const Plan& plan, const Buffers& buffers, std::byte* workspace, void* stream) final;

 protected:
  // Writes every row that a sequence owns.
  virtual void compute(const Plan& plan, const Buffers& buffers, std::byte* workspace,
                       const Executor& executor) = 0;
  virtual void quantize(const Problem& problem, const Buffers& buffers, std::byte* workspace,
                        const Executor& executor) = 0;
  virtual void combine(const Problem& problem, const Buffers& buffers,
                       const Executor& executor) = 0;

 private:
  void run_appending(const Plan& plan, const Buffers& buffers, std::byte* begin);
  void run_prepared(const Plan& plan, const Buffers& buffers, std::byte* begin);

  const Executor& executor_;
  WorkspaceCache workspaces_;
};

// Tiled FlashAttention-2 with SIMD kernels.
class CpuBackend final : public HostBackend {
 public:
  using HostBackend::HostBackend;
  Result<Plan> plan(const Problem& problem) const override;

 protected:
  void compute(const Plan& plan, const Buffers& buffers, std::byte* workspace,
               const Executor& executor) override;
  void quantize(const Problem& problem, const Buffers& buffers, std::byte* workspace,
                const Executor& executor) override;
  void combine(const Problem& problem, const Buffers& buffers, const Executor& executor) override;
};

// Untiled loops in FP64.
class ReferenceBackend final : public HostBackend {
 public:
  using HostBackend::HostBackend;
  Result<Plan> plan(const Problem& problem) const override;

 protected:
  void compute(const Plan& plan, const Buffers& buffers, std::byte* workspace,
               const Executor& executor) override;
  void quantize(const Problem& problem, const Buffers& buffers, std::byte* workspace,
                const Executor& executor) override;
  void combine(const Problem& problem, const Buffers& buffers, const Executor& executor) override;
};

}  // namespace fa3
