// SPDX-License-Identifier: BSD-3-Clause
// launch.cpp — for each step: its slices set to 0, then its kernel's own launch function.
#include "backend/launch/launch.h"

#include "backend/launch/append_sm90.h"
#include "backend/launch/bwd_sm90.h"
#include "backend/launch/decode_sm90.h"
#include "backend/launch/fwd_sm90.h"
#include "backend/launch/mask_sm90.h"
#include "backend/launch/merge_sm90.h"
#include "backend/launch/quantize_sm90.h"
#include "core/span.h"

namespace fa3 {

// The contract of launching, beside that of plan/plan_kernel.h; overloads are found in the kernel's
// namespace.
template <class K>
concept LaunchedKernel = requires(const K& kernel, const Problem& problem, const Buffers& buffers,
                                  const StepRun& run) {
  // UNSUPPORTED for a tensor at an address that the kernel does not accept.
  { check_addresses(kernel, problem, buffers) } -> std::same_as<Status>;
  // Fills in the arguments and puts the kernel on the stream.
  { launch(kernel, run) } -> std::same_as<Status>;
};
template <LaunchedKernel... K>
constexpr bool all_launched(const std::variant<K...>*) {
  return true;
}
static_assert(all_launched(static_cast<const Kernel*>(nullptr)));

Status check_addresses(const Plan& plan, const Buffers& buffers) {
  if (has_no_output_rows(plan.problem)) return {};
  // What lies in the workspace is aligned, wherever that is.
  std::byte* const somewhere = reinterpret_cast<std::byte*>(kWorkspaceAlign);
  for (const KernelStep& step : plan.steps) {
    const Buffers own = step.part->buffers(buffers, somewhere);
    FA3_RETURN_IF_ERROR(
        std::visit([&](const auto& kernel) { return check_addresses(kernel, step.problem(), own); },
                   step.kernel));
  }
  return {};
}

namespace {

// No score yet.
Status reset_max_logit(const Problem& p, const Buffers& buffers, GpuRuntime& runtime,
                       StreamRef stream) {
  constexpr uint32_t kMinusInf = 0xFF800000;
  if (!p.has_max_logit() || p.heads_q == 0) return {};
  return runtime.fill(buffers.data[kMaxLogit], kMinusInf, static_cast<size_t>(p.heads_q),
                      static_cast<size_t>(p.layout[kMaxLogit].head) * sizeof(float), stream);
}

}  // namespace

Status launch(const Plan& plan, GpuRuntime& runtime, StreamRef stream, const Buffers& buffers,
              std::byte* workspace) {
  FA3_RETURN_IF_ERROR(reset_max_logit(plan.problem, buffers, runtime, stream));
  const bool only_resets = plan.problem.has_max_logit() && has_no_rows(plan.problem);
  if (only_resets && !plan.problem.appends()) return {};
  for (const KernelStep& step : plan.steps) {
    for (const ZeroedRange& range : step.zeroed)
      FA3_RETURN_IF_ERROR(runtime.zero(workspace + range.offset, range.bytes, stream));
    const Buffers own = step.part->buffers(buffers, workspace);
    const StepRun run{step, runtime, stream, step.problem(), own, workspace};
    FA3_RETURN_IF_ERROR(
        std::visit([&](const auto& kernel) { return launch(kernel, run); }, step.kernel));
  }
  return {};
}

}  // namespace fa3
