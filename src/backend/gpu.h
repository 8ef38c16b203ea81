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
  // The plan with the kernels for its problem on that device.
  static Result<Plan> planned(Plan plan, const DeviceInfo& on);
};

}  // namespace fa3
