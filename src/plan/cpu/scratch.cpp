// SPDX-License-Identifier: BSD-3-Clause
// scratch.cpp — the layouts of scratch.h.
#include "plan/cpu/scratch.h"

#include <algorithm>

#include "device/types.h"

namespace fa3::cpu {

namespace {
int64_t tiles(int64_t rows) { return div_up(rows, kTileRows); }
int64_t whole_tiles(int64_t rows) { return round_up(rows, kTileRows); }
// Queries of all sequences.
int64_t all_rows(const Problem& p) { return p.q.rows * (p.q.varlen ? 1 : p.batch); }
}  // namespace

ScoreTerms::ScoreTerms(Arena& arena, const CpuPlan& plan, int64_t rows, int64_t columns) {
  if (plan.alibi) {
    position = arena.take<float>(rows);
    slope_high = arena.take<float>(rows);
    slope_low = arena.take<float>(rows);
  }
  if (plan.sequence_ids) {
    row_id = arena.take<int32_t>(rows);
    column_id = arena.take<int32_t>(round_up(columns, kMaxLanes));
  }
  if (plan.mask) {
    mask_at = arena.take<const std::byte*>(rows);
    mask_row = arena.take<float>(round_up(columns, kMaxLanes));
  }
  if (plan.sequence_ids || plan.mask) gaps = arena.take<uint8_t>(rows);
}

QBlock::QBlock(Arena& arena, const CpuPlan& plan)
    : q(arena.take<float>(whole_tiles(plan.tile_q) * plan.width_qk)),
      o(arena.take<float>(whole_tiles(plan.tile_q) * plan.width_v)),
      row_max(arena.take<float>(plan.tile_q)),
      row_sum(arena.take<float>(plan.tile_q)) {}

TreeCells::TreeCells(Arena& arena, const CpuPlan& plan, const Problem& p) {
  if (!p.has_tree()) return;
  before = plan.tile_kv;
  row_bytes = before + kMostInTree;
  rows = arena.take<std::byte>(all_rows(p) * row_bytes);
}

ForwardScratch::ForwardScratch(Arena& arena, const CpuPlan& plan) {
  const int64_t tile_q = whole_tiles(plan.tile_q);
  ld_s = plan.tile_kv + kPadCols;
  k = arena.take<float>(static_cast<int64_t>(plan.tile_kv) * plan.width_qk);
  v = arena.take<float>(static_cast<int64_t>(plan.tile_kv) * plan.width_v);
  if (plan.pages) {
    k_begin = arena.take<int64_t>(plan.tile_kv);
    v_begin = arena.take<int64_t>(plan.tile_kv);
  }
  if (plan.codes) {
    k_values = arena.take<float>(static_cast<int64_t>(plan.tile_kv) * plan.width_qk);
    v_values = arena.take<float>(static_cast<int64_t>(plan.tile_kv) * plan.width_v);
  }
  s = arena.take<float>(tile_q * ld_s);
  rescale = arena.take<float>(tile_q);
  visible = arena.take<Span>(tile_q);
  tile = arena.take<Span>(tiles(tile_q));
  terms = ScoreTerms(arena, plan, tile_q, plan.tile_kv);
  blocks = arena.take<QBlock>(plan.blocks_per_task);
  for (int i = 0; i < plan.blocks_per_task; ++i) {
    const QBlock block(arena, plan);
    if (blocks) blocks[i] = block;
  }
}

Partials::Partials(Arena& arena, const CpuPlan& plan, int64_t heads) {
  const int64_t slots = plan.splits > 1 ? heads * plan.blocks * plan.splits : 0;
  o = arena.take<float>(slots * plan.tile_q * plan.width_v);
  row_max = arena.take<float>(slots * plan.tile_q);
  row_sum = arena.take<float>(slots * plan.tile_q);
}

BackwardScratch::BackwardScratch(Arena& arena, const CpuPlan& plan) {
  const int64_t tile_kv = whole_tiles(plan.tile_kv);
  const int64_t rows_q = round_up(whole_tiles(plan.tile_q), kMaxLanes);
  ld_s = rows_q + kPadCols;
  k_rows = arena.take<float>(tile_kv * plan.width_qk);
  v_rows = arena.take<float>(tile_kv * plan.width_v);
  k_panels = arena.take<float>(tile_kv * plan.width_qk);
  dk = arena.take<float>(tile_kv * plan.width_qk);
  dv = arena.take<float>(tile_kv * plan.width_v);
  qt = arena.take<float>(rows_q * plan.width_qk);
  dot = arena.take<float>(rows_q * plan.width_v);
  q = arena.take<float>(rows_q * plan.width_qk);
  dout = arena.take<float>(rows_q * plan.width_v);
  s = arena.take<float>(tile_kv * ld_s);
  dp = arena.take<float>(tile_kv * ld_s);
  lse_high = arena.take<float>(rows_q);
  lse_low = arena.take<float>(rows_q);
  delta = arena.take<float>(rows_q);
  largest = arena.take<float>(rows_q);
  factor = arena.take<float>(std::max(tile_kv, rows_q));
  visible = arena.take<Span>(tile_kv);
  tile = arena.take<Span>(tiles(tile_kv));
  visible_q = arena.take<Span>(rows_q);
  this->tile_q = arena.take<Span>(tiles(rows_q));
  terms = ScoreTerms(arena, plan, tile_kv, rows_q);
  if (plan.sequence_ids || plan.mask) gaps_q = arena.take<uint8_t>(rows_q);
  if (plan.mask) mask_at_q = arena.take<const std::byte*>(rows_q);
  if (plan.mask_grad) mask_grad = arena.take<double>(tile_kv * ld_s);
}

GradQ::GradQ(Arena& arena, const CpuPlan& plan, const Problem& problem) {
  if (!problem.layout[kDq].present()) return;
  const int64_t all = all_rows(problem);
  rows = first(all, problem.batch, kTileRows) * kTileRows;
  turns = first(all, problem.batch, plan.tile_q);
  dq = arena.take<float>(problem.heads_q * rows * plan.width_qk);
  turn = arena.take<std::atomic<int32_t>>(problem.heads_q * turns);
}

CoarseRows::CoarseRows(Arena& arena, const Problem& problem) {
  if (!may_have(problem)) return;
  rows = all_rows(problem);
  largest = arena.take<float>(problem.heads_q * rows);
  log2_sum = arena.take<float>(problem.heads_q * rows);
}

}  // namespace fa3::cpu
