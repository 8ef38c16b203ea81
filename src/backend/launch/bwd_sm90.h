// SPDX-License-Identifier: BSD-3-Clause
// bwd_sm90.h — the backward kernels of Hopper, on a GPU or in the simulator.
#pragma once

#include "core/problem.h"
#include "plan/plan.h"
#include "runtime/gpu_runtime.h"

namespace fa3::sm90 {

// As in fwd_sm90.h.
Status check_addresses(const BwdPlan& plan, const Problem& problem, const Buffers& buffers);
Status launch(const BwdPlan& plan, const KernelStep& step, GpuRuntime& runtime, StreamRef stream,
              const Problem& problem, const Buffers& buffers, std::byte* workspace);

}  // namespace fa3::sm90
