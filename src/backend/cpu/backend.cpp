// SPDX-License-Identifier: BSD-3-Clause
// backend.cpp — plans and runs of the backends cpu and reference.
#include "backend/cpu/backend.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/decode.h"
#include "backend/cpu/fill.h"
#include "backend/cpu/reference.h"
#include "plan/explain.h"

namespace fa3 {
namespace {

Plan plan_for(const Problem& problem, const DeviceInfo& device) {
  Plan plan;
  plan.problem = problem;
  plan.backend = device.backend;
  plan.threads = device.threads;
  if (problem.is_8_bit()) {
    plan.decoded = cpu::decoded(problem);
    plan.decoded_bytes = cpu::decoded_bytes(problem);
  }
  return plan;
}

}  // namespace

std::string HostBackend::explain(const Plan& plan) const { return fa3::explain(plan, {}); }

Result<WorkspaceLease> HostBackend::workspace(size_t bytes, void*) {
  return workspaces_.borrow(bytes);
}

Status HostBackend::run(const Plan& plan, const Buffers& buffers, std::byte* workspace, void*) {
  const Problem& problem = plan.problem;
  if (has_no_rows(problem) || has_no_keys(problem)) {
    fill_all_rows(problem, buffers);
    return {};
  }
  fill_unowned_rows(problem, buffers);
  std::byte* const begin = aligned(workspace);
  if (plan.decoded)
    compute(plan, cpu::decode(problem, buffers, begin, executor_), begin + plan.decoded_bytes,
            executor_);
  else
    compute(plan, buffers, begin, executor_);
  return {};
}

Result<Plan> CpuBackend::plan(const Problem& problem) const {
  Plan plan = plan_for(problem, device());
  plan.why =
      fmt::format("backend cpu ({}, {} threads): {}", isa_name(device().isa), device().threads,
                  device().backend_chosen ? "the context's options name it"
                                          : "the context's device is the CPU");
  const CpuPlan& cpu = plan.cpu.emplace(
      make_cpu_plan(plan.computed(), device().isa, device().lanes, device().threads));
  plan.workspace_bytes =
      with_alignment(plan.decoded_bytes + cpu.shared_bytes + device().threads * cpu.scratch_bytes);
  return plan;
}

void CpuBackend::compute(const Plan& plan, const Buffers& buffers, std::byte* workspace,
                         const Executor& executor) {
  const bool forward = plan.problem.op == FA3_OP_FORWARD;
  forward ? cpu::forward(plan, buffers, workspace, executor)
          : cpu::backward(plan, buffers, workspace, executor);
}

Result<Plan> ReferenceBackend::plan(const Problem& problem) const {
  Plan plan = plan_for(problem, device());
  plan.why = fmt::format("backend reference (FP64, {} threads): the context's options name it",
                         device().threads);
  plan.workspace_bytes = with_alignment(
      plan.decoded_bytes + reference::workspace_bytes(plan.computed(), device().threads));
  return plan;
}

void ReferenceBackend::compute(const Plan& plan, const Buffers& buffers, std::byte* workspace,
                               const Executor& executor) {
  const bool forward = plan.problem.op == FA3_OP_FORWARD;
  forward ? reference::forward(plan.computed(), buffers, workspace, executor)
          : reference::backward(plan.problem, buffers, workspace, executor);
}

}  // namespace fa3
