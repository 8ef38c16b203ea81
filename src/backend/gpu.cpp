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
  FA3_TRY(KernelPlan planned, kernels(problem));
  return with_kernels(std::move(plan), std::move(planned));
}

Status GpuBackend::check(const Plan& plan, const Buffers& buffers, void*) {
  return check_addresses(plan, buffers);
}

}  // namespace fa3
