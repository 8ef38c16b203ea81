// SPDX-License-Identifier: BSD-3-Clause
// gpu.h — what the backends cuda and sim share: plans are lists of kernels, which a run launches on
// a GpuRuntime (launch/launch.h).
#pragma once

#include "backend/backend.h"

namespace fa3 {

class GpuBackend : public Backend {
 public:
  using Backend::Backend;

  Result<Plan> plan(const Problem& problem) const override;
  // UNSUPPORTED for addresses that a kernel of the plan does not accept.
  Status check(const Plan& plan, const Buffers& buffers, void* stream) override;

 protected:
  virtual std::string why() const = 0;  // this backend, in one sentence
  // For a problem; UNSUPPORTED with the reason where there are none.
  virtual Result<KernelPlan> kernels(const Problem& problem) const = 0;
};

}  // namespace fa3
