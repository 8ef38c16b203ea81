// SPDX-License-Identifier: BSD-3-Clause
// bwd_sm90.h — the backward kernels of Hopper, on a GPU or in the simulator.
#pragma once

#include "backend/launch/step_run.h"
#include "core/problem.h"

namespace fa3::sm90 {

// As in fwd_sm90.h.
Status check_addresses(const BwdPlan& plan, const Problem& problem, const Buffers& buffers);
Status launch(const BwdPlan& plan, const StepRun& run);

}  // namespace fa3::sm90
