// SPDX-License-Identifier: BSD-3-Clause
// plan.cpp — tasks, grid and name of the kernel that appends to a cache.
#include "plan/sm90/append/plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "plan/sm90/float_types.h"
#include "plan/sm90/fwd/names.h"

namespace fa3::sm90 {
namespace {

constexpr int64_t kMostTasks = int64_t{1} << 31;
constexpr int64_t kCtasPerSm = 8;  // all that fit
// Where there are many pieces a warp has more of them, so that what it has to find out about its
// row is shared.
constexpr int kManyGroups = 4;
constexpr int64_t kManyWarps = 32;  // of an SM

// rotated: pairs of columns.
AppendTasks tasks_of(const Problem& p, const SeqAxis& axis, int64_t heads, int64_t columns,
                     int64_t rotated, int groups) {
  AppendTasks t;
  t.pieces = div_up(rotated, kAppendPiece) + div_up(columns - 2 * rotated, kAppendPiece);
  t.warps = div_up(heads * t.pieces, 32 * groups);
  t.tasks = (axis.varlen ? 1 : p.batch) * axis.rows * t.warps;
  return t;
}

}  // namespace

Result<AppendPlan> make_append_plan(const Append& append, const Problem& p, const DeviceInfo& gpu) {
  AppendPlan plan;
  plan.config.type = p.layout[kQ].dtype == FA3_F16 ? MmaType::kF16 : MmaType::kBf16;
  if (append.rotates()) plan.config.table = float_type_of(p.layout[kRotaryCos].dtype);
  plan.append = append;
  const int64_t rotated = p.rotation.rotary_dim / 2, sms = std::max(gpu.multiprocessors, 1);
  int64_t all = 0;
  const auto cut = [&](int groups) {
    plan.groups = groups;
    plan.k = tasks_of(p, p.fresh, p.heads_kv, p.head_dim_qk, rotated, groups);
    plan.v = tasks_of(p, p.fresh, p.heads_kv, p.head_dim_v, 0, groups);
    if (append.rotates()) plan.q = tasks_of(p, p.q, p.heads_q, p.head_dim_qk, rotated, groups);
    all = plan.k.tasks + plan.v.tasks + plan.q.tasks + div_up(p.batch, 32);
  };
  cut(1);
  if (all > kManyWarps * sms) cut(kManyGroups);
  if (all >= kMostTasks)
    return unsupported(
        "forward: {} queries of {} heads and {} new keys of {} heads on sm90: {} pieces of 32 "
        "times 16 bytes, need fewer than 2^31; split the batch",
        p.q.rows, p.heads_q, p.fresh.rows, p.heads_kv, all);
  plan.ctas = static_cast<uint32_t>(
      std::clamp<int64_t>(div_up(all, AppendConfig::kWarps), 1, kCtasPerSm * sms));
  return plan;
}

Program program_of(const AppendPlan& plan) {
  return {"device/sm90/append/append.cuh", append_expression(plan.config), kHopperArch};
}

LaunchShape shape_of(const AppendPlan& plan) {
  LaunchShape shape;
  shape.grid[0] = plan.ctas;
  shape.threads = AppendConfig::kThreads;
  shape.pdl = true;
  return shape;
}

std::string name_of(const AppendPlan& plan) {
  return fmt::format("append/{}/table_{}", word(plan.config.type), word(plan.config.table));
}

void describe(const AppendPlan& plan, const Problem&, Json& json) {
  Json& append = json["append"];
  append["kernel"] = program_of(plan).expression;
  append["grid"] = plan.ctas;
  append["tasks"] = plan.k.tasks + plan.v.tasks + plan.q.tasks;
}

}  // namespace fa3::sm90
