// SPDX-License-Identifier: BSD-3-Clause
// cpu_plan.cpp — the cpu backend's choices of tiles, splits and tasks, and the reasons for them.
#include "plan/cpu/cpu_plan.h"

#include <algorithm>

#include "device/types.h"
#include "plan/cpu/scratch.h"

namespace fa3 {

namespace {

// Forward. S of 192 × 512 and the operands of a tile stay in a 1 MiB L2; longer rows of S spread
// the cost of maximum, sum and rescaling.
constexpr int kTileQ = 192;
constexpr int kTileKv = 512;
constexpr int64_t kTileFloats = 128 * 1024;  // panels of K and V of a tile
// Blocks that share a packed tile: sixteen make packing cost 1/16 of what it costs for one.
constexpr int kMaxBlocksPerTask = 16;
constexpr int64_t kTaskBytes = 4 << 20;  // state of the blocks of a task, at most
constexpr int64_t kTasksPerThread = 8;   // enough to even out tasks of unequal length
// With fewer blocks than this the keys are split, to keep many cores busy; a split has at least
// kMinSplitLen keys, below which merging costs more than it gains.
constexpr int64_t kSplitBelow = 64;
constexpr int64_t kMinSplitLen = 1024;
constexpr int64_t kPartialBytes = 16 << 20;  // of all unmerged results
constexpr int64_t kFewRows = 16;             // up to here packing K and V costs more than it saves

// Backward. Three panels of 64 columns of Sᵀ, none of them narrow; dK and dV of a chunk stay in L2.
// Speed is flat within 3 % from 288 to 960 keys.
constexpr int kGradTileQ = 192;
constexpr int kGradTileKv = 576;

// Longest tile of keys whose K and V panels fit `floats`.
int tile_kv_for(int64_t widths, int most, int64_t floats, int multiple) {
  const int64_t fits = round_down(floats / widths, multiple);
  return static_cast<int>(std::clamp<int64_t>(fits, multiple, most));
}

void plan_forward(const Problem& p, int threads, CpuPlan& plan) {
  const int64_t heads = p.batch * p.heads_kv;
  const int64_t group = p.group_size();
  const int64_t rows = p.q.max_seqlen * group;
  // Few rows are added up in another order, and parts depend on how many blocks there are.
  plan.few_rows = rows <= kFewRows && p.batch_invariant == 0;
  const int64_t most_rows = plan.few_rows ? round_up(kFewRows, cpu::kTileRows) : kTileQ;
  plan.tile_q = static_cast<int>(
      std::clamp<int64_t>(round_up(rows, cpu::kTileRows), cpu::kTileRows, most_rows));
  plan.tile_kv = tile_kv_for(plan.width_qk + plan.width_v, kTileKv, kTileFloats, 64);
  plan.blocks = most_blocks(p.q.max_seqlen, group, plan.tile_q);

  const int64_t block_bytes = plan.tile_q * (plan.width_qk + plan.width_v + 2) * int64_t{4};
  const int64_t evenly = heads * plan.blocks / (kTasksPerThread * threads);
  plan.blocks_per_task = static_cast<int>(std::clamp<int64_t>(
      std::min<int64_t>(evenly, kTaskBytes / block_bytes), 1, kMaxBlocksPerTask));
  if (plan.few_rows) plan.blocks_per_task = static_cast<int>(std::max<int64_t>(plan.blocks, 1));

  const int64_t blocks = heads * plan.blocks;
  if (blocks > 0 && blocks < kSplitBelow && p.batch_invariant == 0) {
    const int64_t slot_bytes = plan.tile_q * (plan.width_v + 2) * int64_t{4};
    const int64_t fit = std::max<int64_t>(kPartialBytes / (blocks * slot_bytes), 1);
    const int64_t most =
        min(fit, min(div_up(kSplitBelow, blocks), div_up(p.kv.max_seqlen, kMinSplitLen)));
    plan.split_len = round_up(div_up(p.kv.max_seqlen, std::max<int64_t>(most, 1)), plan.tile_kv);
    if (plan.split_len > 0) plan.splits = static_cast<int>(div_up(p.kv.max_seqlen, plan.split_len));
    plan.splits = std::max(plan.splits, 1);
  }
  plan.tasks = heads * div_up(plan.blocks, plan.blocks_per_task) * plan.splits;
}

void plan_backward(const Problem& p, CpuPlan& plan) {
  plan.tile_q = static_cast<int>(
      std::clamp<int64_t>(round_up(p.q.max_seqlen, cpu::kTileRows), cpu::kTileRows, kGradTileQ));
  const int most = static_cast<int>(
      std::clamp<int64_t>(round_up(p.kv.max_seqlen, cpu::kTileRows), cpu::kTileRows, kGradTileKv));
  plan.tile_kv = tile_kv_for(plan.width_qk + plan.width_v, most, 2 * kTileFloats, cpu::kTileRows);
  plan.chunks = div_up(p.kv.max_seqlen, plan.tile_kv);
  plan.tasks = p.batch * p.heads_kv * plan.chunks;
}

}  // namespace

CpuPlan make_cpu_plan(const Problem& problem, Isa isa, int lanes, int threads) {
  CpuPlan plan;
  plan.isa = isa;
  plan.width_qk = static_cast<int>(round_up(problem.head_dim_qk, lanes));
  plan.width_v = static_cast<int>(round_up(problem.head_dim_v, lanes));
  plan.alibi = problem.has_alibi();
  plan.sequence_ids = problem.has_sequence_ids();
  plan.mask = problem.hides_by_row();
  plan.mask_grad = problem.layout[kDattnMask].present();
  plan.pages = problem.cache.paged();
  plan.codes = problem.has_8_bit_keys();
  Arena scratch(nullptr);
  Arena shared(nullptr);
  if (problem.op == FA3_OP_FORWARD) {
    plan_forward(problem, threads, plan);
    cpu::ForwardScratch{scratch, plan};
    cpu::Partials{shared, plan, problem.batch * problem.heads_kv};
    cpu::TreeCells{shared, plan, problem};
  } else {
    plan_backward(problem, plan);
    cpu::BackwardScratch{scratch, plan};
    cpu::GradQ{shared, plan, problem};
    cpu::CoarseRows{shared, problem};
  }
  plan.scratch_bytes = scratch.used();
  plan.shared_bytes = shared.used();
  return plan;
}

RowBlocks row_blocks(int64_t len_q, int64_t group_size, int tile_q) {
  RowBlocks blocks;
  blocks.len_q = len_q;
  blocks.rows = len_q * group_size;
  if (blocks.rows == 0) return blocks;
  const bool across_heads = 2 * len_q < tile_q;
  const int64_t rows = across_heads ? blocks.rows : len_q;
  const int64_t count = div_up(rows, tile_q);
  blocks.size = std::min<int64_t>(round_up(div_up(rows, count), cpu::kTileRows), tile_q);
  blocks.per_head = across_heads ? 0 : div_up(rows, blocks.size);
  blocks.count = across_heads ? div_up(rows, blocks.size) : blocks.per_head * group_size;
  return blocks;
}

int64_t most_blocks(int64_t longest, int64_t group_size, int tile_q) {
  return std::max(row_blocks(longest, group_size, tile_q).count,
                  row_blocks(std::min<int64_t>(longest, tile_q), group_size, tile_q).count);
}

RowBlocks::Block RowBlocks::block(int64_t i) const {
  const int64_t head = per_head ? i / per_head : 0;
  const int64_t end = per_head ? (head + 1) * len_q : rows;
  const int64_t first = per_head ? head * len_q + (i % per_head) * size : i * size;
  return {first, static_cast<int>(std::min(size, end - first))};
}

int64_t balanced_tile(int64_t len, int tile, int lanes) {
  const int64_t count = div_up(len, tile);
  return count == 0 ? tile : std::min<int64_t>(round_up(div_up(len, count), lanes), tile);
}

}  // namespace fa3
