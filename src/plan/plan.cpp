// SPDX-License-Identifier: BSD-3-Clause
// plan.cpp — chooses backend and workspace.
#include "plan/plan.h"

#include <algorithm>

#include "backend/cpu/reference.h"

namespace fa3 {
namespace {

size_t with_alignment(size_t bytes) { return bytes == 0 ? 0 : bytes + kWorkspaceAlign - 1; }

Result<Plan> plan_sm90(Plan plan, const DeviceInfo& device) {
  FA3_TRY(plan.fwd, make_fwd_sm90_plan(plan.problem, device));
  plan.why = device.backend == FA3_BACKEND_CUDA
                 ? fmt::format("backend cuda (sm90): the context's device is {}", device.name)
                 : "backend sim (sm90): the context's options name it";
  plan.workspace_bytes = with_alignment(fwd_sm90_workspace_bytes(plan.fwd));
  return plan;
}

}  // namespace

Result<Plan> make_plan(const Problem& problem, const DeviceInfo& device) {
  Plan plan;
  plan.problem = problem;
  plan.backend = device.backend;
  plan.threads = device.threads;
  switch (device.backend) {
    case FA3_BACKEND_CPU:
      plan.why =
          fmt::format("backend cpu ({}, {} threads): {}", isa_name(device.isa), device.threads,
                      device.backend_chosen ? "the context's options name it"
                                            : "the context's device is the CPU");
      plan.cpu = make_cpu_plan(problem, device.isa, device.threads);
      plan.workspace_bytes =
          with_alignment(plan.cpu.shared_bytes + device.threads * plan.cpu.scratch_bytes);
      return plan;
    case FA3_BACKEND_REFERENCE:
      plan.why = fmt::format("backend reference (FP64, {} threads): the context's options name it",
                             device.threads);
      plan.workspace_bytes = with_alignment(reference::workspace_bytes(problem, device.threads));
      return plan;
    case FA3_BACKEND_CUDA:
    case FA3_BACKEND_SIM:
      return plan_sm90(std::move(plan), device);
    case FA3_BACKEND_AUTO:
      break;
  }
  return unsupported("plan: backend {} computes nothing; please report it",
                     static_cast<int>(device.backend));
}

}  // namespace fa3
