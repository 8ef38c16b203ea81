// SPDX-License-Identifier: BSD-3-Clause
// plan.cpp — chooses backend and workspace.
#include "plan/plan.h"

#include <algorithm>

#include "backend/cpu/reference.h"

namespace fa3 {
namespace {

size_t with_alignment(size_t bytes) { return bytes == 0 ? 0 : bytes + kWorkspaceAlign - 1; }

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
    case FA3_BACKEND_AUTO:
    case FA3_BACKEND_CUDA:
    case FA3_BACKEND_SIM:
      break;
  }
  return unsupported("plan: backend {} is not in this release; need cpu or reference",
                     static_cast<int>(device.backend));
}

}  // namespace fa3
