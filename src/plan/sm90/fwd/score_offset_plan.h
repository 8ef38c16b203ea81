// SPDX-License-Identifier: BSD-3-Clause
// score_offset_plan.h — the kernel that finds what k_offset adds to scores, before a forward whose
// LSE or softcap needs it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "device/sm90/fwd/score_offset_config.h"
#include "plan/plan_kernel.h"
#include "runtime/program.h"

namespace fa3::sm90 {

struct ScoreOffsetPlan : PlainKernel {
  ScoreOffsetConfig config;
  uint32_t grid[3] = {1, 1, 1};
  int64_t rows = 0;  // of Q, of all heads: each has an offset
};

ScoreOffsetConfig score_offset_config(fa3_dtype q, int64_t head_dim);
ScoreOffsetPlan make_score_offset_plan(const Problem& problem);

// See plan/plan_kernel.h.
Program program_of(const ScoreOffsetPlan& plan);
LaunchShape shape_of(const ScoreOffsetPlan& plan);
std::vector<Slice> writes(const ScoreOffsetPlan& plan);
std::string name_of(const ScoreOffsetPlan& plan);
std::string head_dims_text(const ScoreOffsetPlan& plan);
void describe(const ScoreOffsetPlan& plan, const Problem& problem, Json& json);

}  // namespace fa3::sm90
