// SPDX-License-Identifier: BSD-3-Clause
// scratch.h — the cpu backend's memory: what a thread needs for one task, and what tasks share.
// Each layout is one constructor, run by the plan to count bytes and by the run to find them.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "device/types.h"
#include "plan/cpu/cpu_plan.h"

namespace fa3::cpu {

// Half-open range of columns, or of units of depth, that concerns one row (or one tile of
// rows).
using Span = Range<int32_t>;

// What slopes, sequence ids and attn_mask do to the scores of a block. Rows are queries and columns
// keys in the forward, the other way round in the backward. Arrays are nullptr in a problem without
// slopes, without ids or without a mask.
struct ScoreTerms {
  // ALiBi and mask: the stored score, in units of log2 or, with a mask, of e, is
  //   score·scale_high + score·scale_low + slope_high·distance + slope_low·distance + mask,
  // distance = |position − column|. Scale and −slope in these units as sums of two floats: rounded
  // to one, they would put the same error on all keys of a row, and on LSE.
  float* position = nullptr;    // [rows]: the column at distance 0
  float* slope_high = nullptr;  // [rows]
  float* slope_low = nullptr;
  float scale_high = 1;
  float scale_low = 0;
  // Sequence ids: a row with gaps has columns of other ids within its span.
  int32_t* row_id = nullptr;     // [rows]
  int32_t* column_id = nullptr;  // [columns], in whole vectors
  // The mask may hide columns in between, too.
  uint8_t* gaps = nullptr;  // [rows]
  // Mask: element (row, column) lies at mask_at[row] + column·mask_step.
  const std::byte** mask_at = nullptr;  // [rows]
  int64_t mask_step = 0;                // bytes
  fa3_dtype mask_dtype = FA3_F32;
  float* mask_row = nullptr;  // [columns], in whole vectors: one row, as softmax reads it

  ScoreTerms() = default;
  ScoreTerms(Arena& arena, const CpuPlan& plan, int64_t rows, int64_t columns);
  bool any() const { return position != nullptr || column_id != nullptr || mask_at != nullptr; }
};

// Least and greatest of some sequence ids; of none at first.
struct IdRange {
  int32_t lo = std::numeric_limits<int32_t>::max();
  int32_t hi = std::numeric_limits<int32_t>::min();

  bool meets(IdRange other) const { return lo <= other.hi && other.lo <= hi; }
};
inline IdRange join(IdRange a, IdRange b) {
  return {a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}

inline constexpr int kPadCols = 16;  // keeps row strides of S off powers of two

// The state of one block of query rows as it advances through the keys.
struct QBlock {
  float* q = nullptr;        // [tile_q][width_qk], operand A
  float* o = nullptr;        // [tile_q][width_v], FP32 accumulator
  float* row_max = nullptr;  // [tile_q]
  float* row_sum = nullptr;  // [tile_q]
  IdRange ids;               // of its queries

  QBlock(Arena& arena, const CpuPlan& plan);
};

struct ForwardScratch {
  float* k = nullptr;          // Kᵀ panels of one tile
  float* v = nullptr;          // V panels of one tile
  int64_t* k_begin = nullptr;  // [tile_kv]: of the rows of a tile in pages, from the first of all
  int64_t* v_begin = nullptr;
  float* k_values = nullptr;  // [tile_kv][width_qk]: of codes
  float* v_values = nullptr;  // [tile_kv][width_v]
  float* s = nullptr;         // [tile_q][ld_s]: scores, then P
  float* rescale = nullptr;   // [tile_q]
  Span* visible = nullptr;    // [tile_q]
  Span* tile = nullptr;       // [tile_q / kTileRows]
  ScoreTerms terms;           // [tile_q], [tile_kv]
  QBlock* blocks = nullptr;   // [blocks_per_task]
  int64_t ld_s = 0;

  ForwardScratch(Arena& arena, const CpuPlan& plan);
};

// Unmerged results of splits: one slot per (batch, KV head, block, split).
struct Partials {
  float* o = nullptr;        // [slot][tile_q][width_v], not normalised
  float* row_max = nullptr;  // [slot][tile_q]
  float* row_sum = nullptr;  // [slot][tile_q]

  Partials(Arena& arena, const CpuPlan& plan, int64_t heads);
};

// What tree_mask shows of the keys before the new ones, all, and of these, for each query of all
// sequences: a byte for each of the last keys of a tile before and for the 64 that bits are of.
struct TreeCells {
  std::byte* rows = nullptr;
  int64_t before = 0;  // a tile's keys
  int64_t row_bytes = 0;

  TreeCells(Arena& arena, const CpuPlan& plan, const Problem& problem);
};

struct BackwardScratch {
  float* k_rows = nullptr;    // [tile_kv][width_qk]: K, V of the chunk as operand A
  float* v_rows = nullptr;    // [tile_kv][width_v]
  float* k_panels = nullptr;  // K as operand B of dQ
  float* dk = nullptr;        // [tile_kv][width_qk]: FP32 accumulators
  float* dv = nullptr;        // [tile_kv][width_v]
  float* qt = nullptr;  // Qᵀ, dOᵀ panels of one block of queries (operand B of Sᵀ, dPᵀ)
  float* dot = nullptr;
  float* q = nullptr;  // Q, dO panels (operand B of dK, dV)
  float* dout = nullptr;
  float* s = nullptr;                     // [tile_kv][ld_s]: Sᵀ, then Pᵀ
  float* dp = nullptr;                    // [tile_kv][ld_s]: dPᵀ, then dSᵀ
  float* lse_high = nullptr;              // [tile_q]
  float* lse_low = nullptr;               // [tile_q]
  float* delta = nullptr;                 // [tile_q]
  float* largest = nullptr;               // [tile_q]: as GradBlock::largest
  bool has_coarse_rows = false;           // of the block of queries
  float* factor = nullptr;                // [max(tile_q, tile_kv)]
  Span* visible = nullptr;                // [tile_kv]: queries that a key sees
  Span* tile = nullptr;                   // [tile_kv / kTileRows]
  Span* visible_q = nullptr;              // [tile_q]: keys that a query sees
  Span* tile_q = nullptr;                 // [tile_q / kTileRows]
  ScoreTerms terms;                       // [tile_kv], [tile_q]
  uint8_t* gaps_q = nullptr;              // [tile_q]: as terms.gaps, of the queries
  const std::byte** mask_at_q = nullptr;  // [tile_q]: as terms.mask_at, of the queries
  double* mask_grad = nullptr;            // [tile_kv][ld_s]: sums of a tile of dattn_maskᵀ
  int64_t ld_s = 0;

  BackwardScratch(Arena& arena, const CpuPlan& plan);
};

// dQ in FP32 for all heads, and whose turn it is to add to each of its blocks: the number of the
// next chunk.
struct GradQ {
  float* dq = nullptr;                   // [heads_q][rows][width_qk]
  std::atomic<int32_t>* turn = nullptr;  // [heads_q][turns]
  int64_t rows = 0;
  int64_t turns = 0;

  GradQ(Arena& arena, const CpuPlan& plan, const Problem& problem);

  // Where the units of sequence b begin when each sequence is cut into units of `size` rows, the
  // last one padded.
  static int64_t first(int64_t first_row, int64_t b, int64_t size) { return first_row / size + b; }
};

// Rows whose LSE is coarse (coarse_lse.h): what the backward takes instead. Of all rows, though it
// is set for those alone, in a run that has some.
struct CoarseRows {
  float* largest = nullptr;   // [heads_q][rows]: score as stored
  float* log2_sum = nullptr;  // [heads_q][rows]
  int64_t rows = 0;           // of all sequences
  bool any = false;

  CoarseRows(Arena& arena, const Problem& problem);

  // Something is added to scores, which may be large for all keys of a row.
  static bool may_have(const Problem& problem) { return problem.has_mask() || problem.has_alibi(); }
};

// The scratch of one slot; slots follow what is shared.
template <class Scratch>
Scratch scratch_of_slot(std::byte* workspace, const CpuPlan& plan, int slot) {
  Arena arena(workspace + plan.shared_bytes + static_cast<size_t>(slot) * plan.scratch_bytes);
  return Scratch(arena, plan);
}

}  // namespace fa3::cpu
