// SPDX-License-Identifier: BSD-3-Clause
// plan.cpp — grid and name of the kernel that merges a caller's parts.
#include "plan/sm90/merge/plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "plan/sm90/float_types.h"

namespace fa3::sm90 {
namespace {

constexpr int64_t kMostPieces = int64_t{1} << 31;
constexpr int64_t kMostGridY = 65535;

}  // namespace

Result<MergePlan> make_merge_plan(const Problem& p) {
  MergePlan plan;
  plan.config.parts = float_type_of(p.layout[kOParts].dtype);
  plan.config.o = float_type_of(p.layout[kMergedO].dtype);
  plan.row_pieces = div_up(p.head_dim_v, plan.config.columns());
  plan.pieces = p.q.rows * p.heads_q * plan.row_pieces;
  plan.batch = p.batch;
  if (plan.pieces < kMostPieces) return plan;
  return unsupported(
      "combine: {} rows of {} heads and {} columns on sm90: {} pieces of {} columns, need fewer "
      "than 2^31; split the rows, or use backend cpu",
      p.q.rows, p.heads_q, p.head_dim_v, plan.pieces, plan.config.columns());
}

Program program_of(const MergePlan& plan) {
  return {"device/sm90/merge/merge.cuh", merge_expression(plan.config), kHopperArch};
}

LaunchShape shape_of(const MergePlan& plan) {
  LaunchShape shape;
  shape.grid[0] = static_cast<u32>(std::max<int64_t>(div_up(plan.pieces, MergeConfig::kPieces), 1));
  shape.grid[1] = static_cast<u32>(std::clamp<int64_t>(plan.batch, 1, kMostGridY));
  shape.threads = MergeConfig::kThreads;
  shape.pdl = true;
  return shape;
}

std::string name_of(const MergePlan& plan) {
  return fmt::format("merge/{}/{}", word(plan.config.parts), word(plan.config.o));
}

void describe(const MergePlan& plan, const Problem&, Json& json) {
  Json& merge = json["sm90"];
  merge["kernel"] = program_of(plan).expression;
  merge["row_pieces"] = plan.row_pieces;
  for (const u32 extent : shape_of(plan).grid) merge["grid"].push_back(extent);
}

}  // namespace fa3::sm90
