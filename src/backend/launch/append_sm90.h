// SPDX-License-Identifier: BSD-3-Clause
// append_sm90.h — Hopper's kernel that appends to a cache, on a GPU or in the simulator.
#pragma once

#include "backend/launch/step_run.h"
#include "device/sm90/append/args.h"

namespace fa3::sm90 {

AppendTensor append_tensor(const Layout& layout, void* data);
AppendTable append_table(const Problem& problem, const Buffers& buffers);

Status launch(const AppendPlan& plan, const StepRun& run);

}  // namespace fa3::sm90
