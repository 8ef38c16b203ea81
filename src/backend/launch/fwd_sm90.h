// SPDX-License-Identifier: BSD-3-Clause
// fwd_sm90.h — the forward kernel of Hopper, and those that prepare 8-bit V and scores for it, on a
// GPU or in the simulator.
#pragma once

#include "backend/launch/step_run.h"
#include "core/problem.h"

namespace fa3::sm90 {

// UNSUPPORTED for a tensor that the kernel would read or write at an address that TMA does not
// accept.
Status check_addresses(const FwdPlan& plan, const Problem& problem, const Buffers& buffers);

Status check_addresses(const VImagePlan& plan, const Problem& problem, const Buffers& buffers);

// Puts the kernel on the stream.
Status launch(const FwdPlan& plan, const StepRun& run);
Status launch(const VImagePlan& plan, const StepRun& run);
Status launch(const ScoreOffsetPlan& plan, const StepRun& run);

}  // namespace fa3::sm90
