// SPDX-License-Identifier: BSD-3-Clause
// score_offset_plan.h — the kernel that finds what k_offset adds to scores, before a forward whose
// LSE or softcap needs it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/json.h"
#include "device/sm90/fwd/score_offset_config.h"
#include "plan/sm90/fwd/plan.h"
#include "plan/work.h"
#include "runtime/program.h"

namespace fa3::sm90 {

struct ScoreOffsetPlan {
  ScoreOffsetConfig config;
  uint32_t grid[3] = {1, 1, 1};
  size_t at = 0;  // of the forward's part of the workspace
};

ScoreOffsetPlan make_score_offset_plan(const FwdPlan& forward, const Problem& problem);

// What a step of a plan (plan/plan.h) needs from a kernel. The workspace is counted by the forward.
Program program_of(const ScoreOffsetPlan& plan);
LaunchShape shape_of(const ScoreOffsetPlan& plan);
inline size_t workspace_bytes(const ScoreOffsetPlan&) { return 0; }
inline size_t zeroed_bytes(const ScoreOffsetPlan&) { return 0; }
std::string name_of(const ScoreOffsetPlan& plan);  // the program's in packs
std::string head_dims_text(const ScoreOffsetPlan& plan);
inline std::optional<ScoreOffsetPlan> wider(const ScoreOffsetPlan&) { return std::nullopt; }
inline bool tuned(const ScoreOffsetPlan&) { return false; }
inline std::string declined(const ScoreOffsetPlan&) { return ""; }
void describe(const ScoreOffsetPlan& plan, const Problem& problem, Json& json);
inline void describe_estimate(const ScoreOffsetPlan&, const Problem&, const Work&, Json&) {}

}  // namespace fa3::sm90
