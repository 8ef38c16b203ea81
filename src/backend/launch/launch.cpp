// SPDX-License-Identifier: BSD-3-Clause
// launch.cpp — for each step: its workspace set to 0, then its kernel's own launch function.
#include "backend/launch/launch.h"

#include "backend/launch/bwd_sm90.h"
#include "backend/launch/fwd_sm90.h"
#include "backend/launch/mask_sm90.h"
#include "backend/launch/quantize_sm90.h"

namespace fa3 {

Status check_addresses(const Plan& plan, const Buffers& buffers) {
  if (has_no_output_rows(plan.problem)) return {};
  // What lies in the workspace is aligned, wherever that is.
  std::byte* const somewhere = reinterpret_cast<std::byte*>(kWorkspaceAlign);
  for (const KernelStep& step : plan.steps) {
    const Problem& problem = problem_of(plan, step);
    const Buffers own = buffers_of(plan, step, buffers, somewhere);
    FA3_RETURN_IF_ERROR(std::visit(
        [&](const auto& kernel) { return check_addresses(kernel, problem, own); }, step.kernel));
  }
  return {};
}

Status launch(const Plan& plan, GpuRuntime& runtime, StreamRef stream, const Buffers& buffers,
              std::byte* workspace) {
  for (const KernelStep& step : plan.steps) {
    std::byte* const own = workspace + step.workspace_offset;
    if (step.zeroed_bytes > 0) FA3_RETURN_IF_ERROR(runtime.zero(own, step.zeroed_bytes, stream));
    FA3_RETURN_IF_ERROR(std::visit(
        [&](const auto& kernel) {
          return launch(kernel, step, runtime, stream, problem_of(plan, step),
                        buffers_of(plan, step, buffers, workspace), own);
        },
        step.kernel));
  }
  return {};
}

}  // namespace fa3
