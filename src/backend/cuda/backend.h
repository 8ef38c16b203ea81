// SPDX-License-Identifier: BSD-3-Clause
// backend.h — the backend cuda: kernels on a GPU, on the caller's memory and streams.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "backend/cuda/jit.h"
#include "backend/cuda/runtime.h"
#include "backend/gpu.h"
#include "core/log.h"
#include "core/once.h"

namespace fa3::cuda {

// The GPU is opened by the first call that needs it.
class CudaBackend final : public GpuBackend {
 public:
  // jit outlives it. check_values: FA3_CHECK=1.
  CudaBackend(DeviceInfo device, LazyJit& jit, Logger logger, bool check_values)
      : GpuBackend(std::move(device)), jit_(jit), logger_(logger), check_values_(check_values) {}

  std::string explain(const Plan& plan) const override;
  // A kernel bundle has the head dims of the table. For others, a machine without a compiler uses
  // the wider kernel of the table's row, which computes them as well; and for one that only a
  // tuning names, that of the table's own choice.
  Result<Plan> prepare(Plan plan, StreamRef on) override;
  Plan settled(Plan plan) override;
  // With FA3_CHECK=1 it also waits for the stream, reads cu_seqlens, seqused and scales and checks
  // them, as is always done where they are in host memory.
  Status check(const Plan& plan, const Buffers& buffers, void* stream) override;
  // One per stream, kept; calls on a stream come one after another while they enqueue. UNSUPPORTED
  // under graph capture: a graph would keep the address, which a later call may free.
  Result<WorkspaceLease> workspace(size_t bytes, void* stream) override;
  Status run(const Plan& plan, const Buffers& buffers, std::byte* workspace, void* stream) override;

 protected:
  std::string why() const override;
  Result<KernelPlan> kernels(const Problem& problem) const override;

 private:
  struct KeptWorkspace {
    std::mutex in_use;  // guards what follows
    void* data = nullptr;
    size_t bytes = 0;
    uint64_t thread = 0;  // of the default stream that used it, in the order of their first calls
  };
  // The default stream of a thread has one handle for all of them. A thread that has ended gives
  // its id to another one.
  using StreamKey = std::pair<void*, std::thread::id>;

  Result<CudaRuntime*> runtime();
  // The plan without the device's tuning.
  Result<Plan> by_table(Plan plan) const;
  // Whether each kernel is found or compiled, though perhaps not loaded.
  bool has_kernels(const Plan& plan);
  Result<Plan> prepare_steps(Plan plan, CudaRuntime& gpu, StreamRef on);
  bool first_time(const std::string& warning);
  Result<KernelStep> prepared(const char* op, const KernelStep& step, CudaRuntime& gpu,
                              StreamRef on);
  bool contains(const std::set<std::string>& names, const std::string& name);

  LazyJit& jit_;
  Logger logger_;
  bool check_values_;
  Once<std::unique_ptr<CudaRuntime>> runtime_;
  std::mutex mutex_;  // guards what follows
  std::map<StreamKey, KeptWorkspace> workspaces_;
  std::set<std::string> missing_;  // expressions of kernels that wider ones stand for
  std::set<std::string> untuned_;  // keys of problems whose tuned kernel is missing
  std::set<std::string> warned_;
};

}  // namespace fa3::cuda
