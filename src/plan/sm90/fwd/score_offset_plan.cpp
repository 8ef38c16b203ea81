// SPDX-License-Identifier: BSD-3-Clause
// score_offset_plan.cpp — grid and name of the kernel that finds what k_offset adds to scores.
#include "plan/sm90/fwd/score_offset_plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "plan/sm90/fwd/plan.h"
#include "plan/sm90/slices.h"

namespace fa3::sm90 {

ScoreOffsetConfig score_offset_config(fa3_dtype q, int64_t head_dim) {
  ScoreOffsetConfig config{q == FA3_I8, 1};
  while (config.lanes * ScoreOffsetConfig::kPiece < head_dim) config.lanes *= 2;
  return config;
}

ScoreOffsetPlan make_score_offset_plan(const Problem& p) {
  ScoreOffsetPlan plan;
  plan.config = score_offset_config(p.layout[kQ].dtype, p.head_dim_qk);
  const int64_t rows = std::min(p.q.rows, p.q.max_seqlen);
  plan.grid[0] = static_cast<uint32_t>(std::max<int64_t>(div_up(rows, plan.config.rows()), 1));
  plan.grid[1] = static_cast<uint32_t>(p.heads_q);
  plan.grid[2] = static_cast<uint32_t>(std::max<int64_t>(p.batch, 1));
  plan.rows = p.heads_q * p.q.rows * (p.q.varlen ? 1 : p.batch);
  return plan;
}

Program program_of(const ScoreOffsetPlan& plan) {
  return {"device/sm90/fwd/score_offset.cuh", score_offset_expression(plan.config), kHopperArch};
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
