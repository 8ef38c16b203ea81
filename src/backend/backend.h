// SPDX-License-Identifier: BSD-3-Clause
// backend.h — the interface of backends, which plan and compute: cpu, reference, cuda, sim. A
// context owns one; only the factory (open.h) knows which.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "backend/workspace.h"
#include "core/device.h"
#include "core/problem.h"
#include "core/status.h"
#include "plan/plan.h"
#include "runtime/gpu_runtime.h"

namespace fa3 {

// Safe to use from many threads at once. `stream` is a stream of the device (a CUstream; null is
// its default stream), or null on a backend whose tensors are in host memory.
class Backend {
 public:
  explicit Backend(DeviceInfo device) : device_(std::move(device)) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  const DeviceInfo& device() const { return device_; }
  // Are tensors in host memory? Then the values of cu_seqlens and seqused can be checked.
  bool on_host() const { return device_.type == FA3_DEVICE_CPU; }

  // How the problem is computed; UNSUPPORTED with the reason why it is not. A pure function.
  virtual Result<Plan> plan(const Problem& problem) const = 0;
  // The plan that runs here in place of `plan`: its kernels, or their substitutes where there is no
  // compiler, are found or compiled now, so that a run on that stream does neither.
  virtual Result<Plan> prepare(Plan plan, [[maybe_unused]] StreamRef on) { return plan; }
  // The plan that prepare() would give, without compiling; and as JSON (plan/explain.h).
  virtual Plan settled(Plan plan) { return plan; }
  virtual std::string explain(const Plan& plan) const = 0;

  // Requirements on the buffers of a run beyond those of all backends.
  virtual Status check([[maybe_unused]] const Plan& plan, [[maybe_unused]] const Buffers& buffers,
                       [[maybe_unused]] void* stream) {
    return {};
  }
  // Memory for a one-call function's workspace on that stream.
  virtual Result<WorkspaceLease> workspace(size_t bytes, void* stream) = 0;
  // buffers were validated against plan.problem and passed check(); workspace has
  // plan.workspace_bytes. On a host the outputs are written when it returns; on a GPU the work has
  // been enqueued on the stream. May throw Error.
  virtual Status run(const Plan& plan, const Buffers& buffers, std::byte* workspace,
                     void* stream) = 0;

 private:
  DeviceInfo device_;
};

// The first address in a workspace that is aligned to kWorkspaceAlign.
inline std::byte* aligned(std::byte* workspace) {
  const auto address = reinterpret_cast<uintptr_t>(workspace);
  return workspace + (kWorkspaceAlign - address % kWorkspaceAlign) % kWorkspaceAlign;
}

}  // namespace fa3
