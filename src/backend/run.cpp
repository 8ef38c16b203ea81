// SPDX-License-Identifier: BSD-3-Clause
// run.cpp — the one dispatch over backends, and the rows that no backend needs to see.
#include "backend/run.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/reference.h"
#include "backend/fill.h"
#include "backend/launch_fwd_sm90.h"
#include "backend/sim/forward.h"
#include "core/status.h"

namespace fa3 {
namespace {

// No query can see a key, whatever the values of seqused are.
bool nothing_to_attend(const Problem& p) {
  return nothing_to_launch(p) || p.batch == 0 || p.kv.rows == 0;
}

std::byte* aligned(std::byte* workspace) {
  const auto address = reinterpret_cast<uintptr_t>(workspace);
  return workspace + (kWorkspaceAlign - address % kWorkspaceAlign) % kWorkspaceAlign;
}

}  // namespace

void run(const Plan& plan, const Buffers& buffers, std::byte* workspace, const Executor& executor) {
  const Problem& problem = plan.problem;
  if (nothing_to_attend(problem)) return fill_all_rows(problem, buffers);
  fill_unowned_rows(problem, buffers);
  workspace = aligned(workspace);
  const bool forward = problem.op == FA3_OP_FORWARD;
  switch (plan.backend) {
    case FA3_BACKEND_CPU:
      return forward ? cpu::forward(plan, buffers, workspace, executor)
                     : cpu::backward(plan, buffers, workspace, executor);
    case FA3_BACKEND_REFERENCE:
      return forward ? reference::forward(problem, buffers, workspace, executor)
                     : reference::backward(problem, buffers, workspace, executor);
    case FA3_BACKEND_AUTO:
    case FA3_BACKEND_CUDA:
    case FA3_BACKEND_SIM:
      break;
  }
  throw Error(FA3_INTERNAL,
              fmt::format("run: a plan for backend {} reached the host; please report it",
                          static_cast<int>(plan.backend)));
}

Status run(const Plan& plan, const Buffers& buffers, std::byte* workspace, Machine& machine,
           StreamRef stream) {
  const Problem& problem = plan.problem;
  if (nothing_to_launch(problem)) return {};
  workspace = aligned(workspace);
  if (plan.backend == FA3_BACKEND_SIM)
    return sim::forward(static_cast<sim::SimMachine&>(machine), plan, buffers, workspace);
  return launch_fwd_sm90(machine, stream, problem, plan.fwd, buffers, workspace);
}

}  // namespace fa3
