// SPDX-License-Identifier: BSD-3-Clause
// merge_sm90.h — Hopper's kernel of fa3_combine, on a GPU or in the simulator.
#pragma once

#include "backend/launch/step_run.h"

namespace fa3::sm90 {

Status launch(const MergePlan& plan, const StepRun& run);

}  // namespace fa3::sm90
