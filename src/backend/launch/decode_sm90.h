// SPDX-License-Identifier: BSD-3-Clause
// decode_sm90.h — the decode kernels of Hopper, on a GPU or in the simulator.
#pragma once

#include "backend/launch/step_run.h"
#include "core/problem.h"

namespace fa3::sm90 {

// As in fwd_sm90.h.
Status check_addresses(const DecodePlan& plan, const Problem& problem, const Buffers& buffers);
Status launch(const DecodePlan& plan, const StepRun& run);
Status launch(const CombinePlan& plan, const StepRun& run);

}  // namespace fa3::sm90
