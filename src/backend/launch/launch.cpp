// SPDX-License-Identifier: BSD-3-Clause
// launch.cpp — for each step: its workspace set to 0, then its kernel's own launch function.
#include "backend/launch/launch.h"

#include "backend/launch/fwd_sm90.h"

namespace fa3 {

Status check_addresses(const std::vector<KernelStep>& steps, const Problem& problem,
                       const Buffers& buffers) {
  if (has_no_rows(problem)) return {};
  for (const KernelStep& step : steps) {
    FA3_RETURN_IF_ERROR(
        std::visit([&](const auto& kernel) { return check_addresses(kernel, problem, buffers); },
                   step.kernel));
  }
  return {};
}

Status launch(const std::vector<KernelStep>& steps, GpuRuntime& runtime, StreamRef stream,
              const Problem& problem, const Buffers& buffers, std::byte* workspace) {
  for (const KernelStep& step : steps) {
    std::byte* const own = workspace + step.workspace_offset;
    if (step.zeroed_bytes > 0) FA3_RETURN_IF_ERROR(runtime.zero(own, step.zeroed_bytes, stream));
    FA3_RETURN_IF_ERROR(std::visit(
        [&](const auto& kernel) {
          return launch(kernel, step, runtime, stream, problem, buffers, own);
        },
        step.kernel));
  }
  return {};
}

}  // namespace fa3
