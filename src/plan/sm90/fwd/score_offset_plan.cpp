// SPDX-License-Identifier: BSD-3-Clause
// score_offset_plan.cpp — grid and name of the kernel that finds what k_offset adds to scores.
#include "plan/sm90/fwd/score_offset_plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "plan/sm90/fwd/plan.h"
#include "plan/sm90/slices.h"

namespace fa3::sm90 {

ScoreOffsetPlan make_score_offset_plan(const Problem& p) {
  ScoreOffsetPlan plan;
  plan.config = {p.layout[kQ].dtype == FA3_I8, 1};
  while (plan.config.lanes * ScoreOffsetConfig::kPiece < p.head_dim_qk) plan.config.lanes *= 2;
  const int64_t rows = std::min(p.q.rows, p.q.max_seqlen);
  plan.grid[0] = static_cast<uint32_t>(std::max<int64_t>(div_up(rows, plan.config.rows()), 1));
  plan.grid[1] = static_cast<uint32_t>(p.heads_q);
  plan.grid[2] = static_cast<uint32_t>(std::max<int64_t>(p.batch, 1));
  plan.rows = p.heads_q * p.q.rows * (p.q.varlen ? 1 : p.batch);
  return plan;
}

Program program_of(const ScoreOffsetPlan& plan) {
  return {"device/sm90/fwd/score_offset.cuh", score_offset_expression(plan.config)};
}

LaunchShape shape_of(const ScoreOffsetPlan& plan) {
  LaunchShape shape;
  std::copy(std::begin(plan.grid), std::end(plan.grid), shape.grid);
  shape.threads = ScoreOffsetConfig::kThreads;
  shape.pdl = true;
  return shape;
}

std::vector<Slice> writes(const ScoreOffsetPlan& plan) {
  return {{.name = kScoreOffsetSlice,
           .bytes = sizeof(float) * static_cast<size_t>(plan.rows),
           .align = kCacheLine}};
}

std::string name_of(const ScoreOffsetPlan& plan) {
  return fmt::format("score_offset/{}/d{}", plan.config.is_i8 ? "i8" : "e4m3",
                     head_dims_text(plan));
}

std::string head_dims_text(const ScoreOffsetPlan& plan) {
  return std::to_string(plan.config.lanes * ScoreOffsetConfig::kPiece);
}

void describe(const ScoreOffsetPlan& plan, const Problem&, Json& json) {
  json["score_offset"]["kernel"] = program_of(plan).expression;
}

}  // namespace fa3::sm90
