// SPDX-License-Identifier: BSD-3-Clause
// gpu.cpp — plans of kernels, and which addresses their tensors may have.
#include "backend/gpu.h"

#include "backend/launch/launch.h"

namespace fa3 {

Result<Plan> GpuBackend::plan(const Problem& problem) const {
  Plan plan;
  plan.problem = problem;
  plan.backend = device().backend;
  plan.threads = device().threads;
  plan.why = why();
  return planned(std::move(plan), device());
}

Result<Plan> GpuBackend::planned(Plan plan, const DeviceInfo& on) {
  FA3_TRY(KernelPlan kernels, plan_kernels(plan.problem, on));
  return with_kernels(std::move(plan), std::move(kernels));
}

Status GpuBackend::check(const Plan& plan, const Buffers& buffers, void*) {
  return check_addresses(plan, buffers);
}

}  // namespace fa3
