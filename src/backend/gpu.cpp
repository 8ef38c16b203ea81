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
  return with_kernels(std::move(plan), device());
}

Result<Plan> GpuBackend::with_kernels(Plan plan, const DeviceInfo& on) {
  FA3_TRY(KernelPlan kernels, plan_kernels(plan.problem, on));
  plan.recipe = std::move(kernels.recipe);
  plan.steps = std::move(kernels.steps);
  plan.workspace_bytes = with_alignment(kernel_bytes(plan));
  return plan;
}

Status GpuBackend::check(const Plan& plan, const Buffers& buffers, void*) {
  return check_addresses(plan, buffers);
}

}  // namespace fa3
