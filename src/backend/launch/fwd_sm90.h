// SPDX-License-Identifier: BSD-3-Clause
// fwd_sm90.h — the forward kernel of Hopper, and those that prepare 8-bit V and scores for it, on a
// GPU or in the simulator.
#pragma once

#include "core/problem.h"
#include "plan/plan.h"
#include "runtime/gpu_runtime.h"

namespace fa3::sm90 {

// UNSUPPORTED for a tensor that the kernel would read or write at an address that TMA does not
// accept.
Status check_addresses(const FwdPlan& plan, const Problem& problem, const Buffers& buffers);

Status check_addresses(const VImagePlan& plan, const Problem& problem, const Buffers& buffers);

inline Status check_addresses(const ScoreOffsetPlan&, const Problem&, const Buffers&) {
  return {};  // the forward's, of the same tensor
}

// Puts the kernel on the stream. buffers were validated against problem, which has queries, and
// passed check_addresses; their addresses are in the runtime's memory. workspace: that of the step.
Status launch(const FwdPlan& plan, const KernelStep& step, GpuRuntime& runtime, StreamRef stream,
              const Problem& problem, const Buffers& buffers, std::byte* workspace);
Status launch(const VImagePlan& plan, const KernelStep& step, GpuRuntime& runtime, StreamRef stream,
              const Problem& problem, const Buffers& buffers, std::byte* workspace);
Status launch(const ScoreOffsetPlan& plan, const KernelStep& step, GpuRuntime& runtime,
              StreamRef stream, const Problem& problem, const Buffers& buffers,
              std::byte* workspace);

}  // namespace fa3::sm90
