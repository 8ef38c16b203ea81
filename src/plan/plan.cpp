// SPDX-License-Identifier: BSD-3-Clause
// plan.cpp — the list of kernels for a problem on a GPU, and the steps of a list.
#include "plan/plan.h"

#include <algorithm>

namespace fa3 {

KernelStep step_of(const Kernel& kernel, size_t workspace_offset) {
  KernelStep step;
  step.workspace_offset = workspace_offset;
  std::visit(
      [&step](const auto& k) {
        step.program = program_of(k);
        step.shape = shape_of(k);
        step.workspace_bytes = workspace_bytes(k);
        step.zeroed_bytes = zeroed_bytes(k);
      },
      kernel);
  step.kernel = kernel;
  return step;
}

Result<std::vector<KernelStep>> plan_kernels(const Problem& problem, const DeviceInfo& gpu) {
  if (problem.op == FA3_OP_QUANTIZE) {
    return unsupported(
        "quantize: no GPU kernel in this release; quantise in host memory with a context of the "
        "CPU, and copy codes, scales and offsets");
  }
  if (gpu.sm != 90) {
    return unsupported("{}: no kernels for {} (compute capability {}.{}), need 9.0, a Hopper GPU",
                       op_name(problem.op), gpu.name, gpu.sm / 10, gpu.sm % 10);
  }
  if (problem.precision != FA3_PRECISION_DEFAULT) {
    return unsupported(
        "forward: precision={} ({}) has no GPU kernel that quantises in this release; quantise "
        "with fa3_quantize in host memory and pass the codes, or leave precision 0",
        static_cast<int>(problem.precision), precision_name(problem.precision));
  }
  FA3_TRY(const sm90::FwdPlan forward, sm90::make_fwd_plan(problem, gpu));
  std::vector<KernelStep> steps;
  // Both work on the forward's part of the workspace.
  if (forward.config.v_image)
    steps.push_back(step_of(sm90::make_v_image_plan(forward, problem), 0));
  steps.push_back(step_of(forward, 0));
  return steps;
}

size_t workspace_bytes(const std::vector<KernelStep>& steps) {
  size_t bytes = 0;
  for (const KernelStep& step : steps)
    bytes = std::max(bytes, step.workspace_offset + step.workspace_bytes);
  return bytes;
}

}  // namespace fa3
