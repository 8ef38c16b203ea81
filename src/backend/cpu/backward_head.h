// SPDX-License-Identifier: BSD-3-Clause
// backward_head.h — what the passes of the cpu backend's backward share: one head, a block of its
// queries as operands, and which queries and keys of a block see each other. Block matrices are
// transposed (row = key).
#pragma once

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <limits>

#include "backend/cpu/block.h"
#include "backend/cpu/ids.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/mask_rows.h"
#include "device/attn/coarse_lse.h"
#include "plan/cpu/scratch.h"

namespace fa3::cpu {

struct Backward {
  const Problem& problem;
  const CpuPlan& cpu;
  const Buffers& buffers;
  const Kernels& kernels;
  ScoreScale scale;
  Band band;
  GradQ grad_q;
  CoarseRows coarse;

  int width(TensorId id) const {
    const bool v = id == kV || id == kDv || id == kO || id == kDout;
    return static_cast<int>(v ? problem.head_dim_v : problem.head_dim_qk);
  }
  bool wants(TensorId id) const { return problem.layout[id].present(); }
  bool wants_inputs() const { return wants(kDq) || wants(kDk) || wants(kDv); }
};

// One (sequence, KV head), and where its rows are.
struct Head : KvHead {
  const Backward& run;

  Head(const Backward& run, int64_t index) : KvHead(run.problem, run.buffers, index), run(run) {}

  bool has_mask() const { return run.problem.has_mask(); }
  bool may_have_gaps() const { return kv_ids != nullptr || has_mask(); }

  Rows rows(TensorId id, int64_t row, int64_t h, int count) const {
    const bool keys = id == kK || id == kV || id == kDk || id == kDv;
    return rows_at(run.problem.layout[id], run.buffers.data[id], b,
                   keys ? kv_seq.begin : q_seq.begin, row, h, count, run.width(id));
  }
  float* dq(int64_t h, int64_t query) const {
    return run.grad_q.dq +
           (h * run.grad_q.rows + run.grad_q.first(first_row(), b, kTileRows) * kTileRows + query) *
               run.cpu.width_qk;
  }
  std::atomic<int32_t>& turn(int64_t h, int64_t block) const {
    return run.grad_q
        .turn[h * run.grad_q.turns + run.grad_q.first(first_row(), b, run.cpu.tile_q) + block];
  }
  // First row of this sequence among the rows of all sequences.
  int64_t first_row() const { return run.problem.q.varlen ? q_seq.begin : b * run.problem.q.rows; }

  int64_t block_size() const { return balanced_tile(len.q, run.cpu.tile_q, kTileRows); }
  int64_t chunk_size() const { return balanced_tile(len.kv, run.cpu.tile_kv, kTileRows); }
  IndexRange chunk(int64_t index) const {
    return {index * chunk_size(), min((index + 1) * chunk_size(), len.kv)};
  }

  // Does the chunk add to dQ of a block? A function of band and ids only: tasks of other chunks ask
  // it, too. Without ids every chunk that the band of a block meets does, attn_mask or not.
  bool meets(IndexRange block, IdRange block_ids, int64_t index) const {
    return !intersect(visible_keys(run.band, aligned, block), chunk(index)).empty() &&
           (kv_ids == nullptr || range_of(kv_ids, chunk(index)).meets(block_ids));
  }
  // The last chunk before that one which adds to dQ of a block, or −1.
  int64_t chunk_before(int64_t index, IndexRange block) const {
    const IndexRange keys = visible_keys(run.band, aligned, block);
    const int64_t first = keys.lo / chunk_size();
    if (kv_ids == nullptr) return first < index ? index - 1 : -1;
    const IdRange ids = range_of(q_ids, block);
    for (int64_t i = min(index, div_up(keys.hi, chunk_size())) - 1; i >= first; --i)
      if (meets(block, ids, i)) return i;
    return -1;
  }
  bool sees_none(IndexRange block) const {
    return visible_keys(run.band, aligned, block).empty() ||
           (kv_ids != nullptr && chunk_before(div_up(len.kv, chunk_size()), block) < 0);
  }
};

// A block of queries of one head as panels, and whether all operands that contract over queries are
// finite.
inline bool load_queries(const Head& head, int64_t h, IndexRange block, BackwardScratch& x) {
  const Backward& run = head.run;
  const Kernels& kernels = run.kernels;
  const int rows = static_cast<int>(block.size());
  const Rows q = head.rows(kQ, block.lo, h, rows);
  const Rows dout = head.rows(kDout, block.lo, h, rows);
  kernels.pack_transposed(q, x.qt);
  kernels.pack_transposed(dout, x.dot);
  const bool finite_q = kernels.pack_rows(q, x.q);
  const bool finite_dout = kernels.pack_rows(dout, x.dout);

  kernels.row_dot(head.rows(kO, block.lo, h, rows), dout, x.delta);
  const Problem& p = run.problem;
  const auto row_value = [&](TensorId id, int i) {
    return *element<float>(p.layout[id], run.buffers.data[id], head.b, head.q_seq.begin,
                           block.lo + i, h);
  };
  x.has_coarse_rows = false;
  for (int i = 0; i < rows; ++i) {
    const float given = row_value(kLse, i);
    const double lse = given * run.scale.lse_log2;
    x.lse_high[i] = static_cast<float>(lse);
    x.lse_low[i] = std::isfinite(x.lse_high[i]) ? static_cast<float>(lse - x.lse_high[i]) : 0.0f;
    x.largest[i] = 0.0f;
    if (run.coarse.any && is_coarse(given)) {
      const int64_t at = h * run.coarse.rows + head.first_row() + block.lo + i;
      x.has_coarse_rows = true;
      x.largest[i] = run.coarse.largest[at];
      x.lse_high[i] = run.coarse.log2_sum[at], x.lse_low[i] = 0.0f;
    }
    if (run.wants(kDlse)) x.delta[i] -= row_value(kDlse, i);
  }
  const int padded = static_cast<int>(round_up(round_up(rows, kTileRows), kMaxLanes));
  std::fill(x.lse_high + rows, x.lse_high + padded, std::numeric_limits<float>::infinity());
  std::fill(x.lse_low + rows, x.lse_low + padded, 0.0f);
  std::fill(x.delta + rows, x.delta + padded, 0.0f);
  std::fill(x.largest + rows, x.largest + padded, 0.0f);
  return finite_q && finite_dout;
}

// What ids leave visible in the spans of a block and a chunk.
inline void narrow_spans(const Head& head, IndexRange chunk, IndexRange block, BackwardScratch& x) {
  const int32_t* const q_ids = head.q_ids + block.lo;
  const int32_t* const kv_ids = head.kv_ids + chunk.lo;
  IdFinder queries(q_ids, block.size()), keys(kv_ids, chunk.size());
  std::copy_n(q_ids, block.size(), x.terms.column_id);
  std::copy_n(kv_ids, chunk.size(), x.terms.row_id);
  for (int64_t j = 0; j < chunk.size(); ++j) {
    const IdSpan& found = queries.find(kv_ids[j]);
    x.visible[j] = overlap(x.visible[j], found.span);
    x.terms.gaps[j] = found.gaps || head.has_mask();
  }
  for (int64_t i = 0; i < block.size(); ++i) {
    const IdSpan& found = keys.find(q_ids[i]);
    x.visible_q[i] = overlap(x.visible_q[i], found.span);
    x.gaps_q[i] = found.gaps || head.has_mask();
  }
}

// What attn_mask of query head h leaves visible: of a query the keys from the first to the last
// that it shows, of a key the queries whose keys these may be. Hidden ones may remain in between.
inline void mask_spans(const Head& head, int64_t h, IndexRange chunk, IndexRange block,
                       BackwardScratch& x) {
  const HeadMask mask(head.run.problem, head.run.buffers, head.b, h);
  const int keys = static_cast<int>(chunk.size());
  x.terms.mask_dtype = mask.dtype;
  x.terms.mask_step = mask.row;
  for (int j = 0; j < keys; ++j) {
    x.terms.mask_at[j] = mask.keys_of(block.lo, chunk.lo + j).at;
    x.terms.gaps[j] = 1;
  }
  Span all{keys, 0};
  for (int i = 0; i < block.size(); ++i) {
    const MaskRow row = mask.keys_of(block.lo + i, chunk.lo);
    x.mask_at_q[i] = row.at;
    x.gaps_q[i] = 1;
    x.visible_q[i] = row.visible(x.visible_q[i]);
    if (x.visible_q[i].empty()) continue;
    all = {std::min(all.lo, x.visible_q[i].lo), std::max(all.hi, x.visible_q[i].hi)};
  }
  for (int j = 0; j < keys; ++j) {
    Span& queries = x.visible[j];
    if (j < all.lo || j >= all.hi) queries = {};
    const auto sees = [&](int i) { return j >= x.visible_q[i].lo && j < x.visible_q[i].hi; };
    while (!queries.empty() && !sees(queries.lo)) ++queries.lo;
    while (!queries.empty() && !sees(queries.hi - 1)) --queries.hi;
  }
}

// dQ of a tile of queries reads dS of all keys in its span. With ids or a mask these may be keys
// that none of its queries sees: their tiles take the queries in, so that dS is defined (0) there.
inline void cover_queries(const Span* tile_q, int64_t tiles_q, Span* tile) {
  for (int32_t t = 0; t < tiles_q; ++t) {
    const Span queries{t * kTileRows, (t + 1) * kTileRows};
    for (int32_t k = tile_q[t].lo / kTileRows; k * kTileRows < tile_q[t].hi; ++k) {
      tile[k] = tile[k].empty()
                    ? queries
                    : Span{std::min(tile[k].lo, queries.lo), std::max(tile[k].hi, queries.hi)};
    }
  }
}

// Which queries of the block, of query head h, each key of the chunk sees, and the other way round.
// False when none does.
inline bool set_spans(const Head& head, int64_t h, IndexRange chunk, IndexRange block,
                      BackwardScratch& x) {
  const int keys = static_cast<int>(chunk.size());
  const int queries = static_cast<int>(block.size());
  const int padded_keys = static_cast<int>(round_up(keys, kTileRows));
  const int padded_queries = static_cast<int>(round_up(queries, kTileRows));
  std::fill(x.visible + keys, x.visible + padded_keys, Span{});
  std::fill(x.visible_q + queries, x.visible_q + padded_queries, Span{});
  for (int j = 0; j < keys; ++j)
    x.visible[j] = local_span(head.queries_of(head.run.band, chunk.lo + j), block);
  for (int i = 0; i < queries; ++i)
    x.visible_q[i] = local_span(visible_keys(head.run.band, head.aligned, block.lo + i), chunk);
  if (head.has_mask()) mask_spans(head, h, chunk, block, x);
  if (head.kv_ids != nullptr) narrow_spans(head, chunk, block, x);
  join_spans(x.visible_q, padded_queries, head.run.kernels.unit, x.tile_q);
  if (!join_spans(x.visible, padded_keys, head.run.kernels.unit, x.tile)) return false;
  if (head.may_have_gaps()) cover_queries(x.tile_q, padded_queries / kTileRows, x.tile);
  // dQ reads whole tiles of queries: P and dS must be defined (0) there too.
  for (int t = 0; t < padded_keys / kTileRows; ++t) {
    if (x.tile[t].empty()) continue;
    x.tile[t].lo = static_cast<int32_t>(round_down(x.tile[t].lo, kTileRows));
    x.tile[t].hi = static_cast<int32_t>(
        min(round_up(x.tile[t].hi, kTileRows), round_up(queries, head.run.kernels.unit)));
  }
  return true;
}

// The scale, and the ALiBi of a query head for the keys of a chunk, in positions of a block's
// queries.
inline void set_bias(const Head& head, IndexRange chunk, IndexRange block, int64_t h,
                     ScoreTerms& terms) {
  const Backward& run = head.run;
  if (!run.problem.has_alibi() && !head.has_mask()) return;
  const int keys = static_cast<int>(chunk.size());
  terms.scale_high = run.scale.term_high;
  terms.scale_low = run.scale.term_low;
  if (!run.problem.has_alibi()) return;
  set_slopes(run.problem, run.buffers, head.b, h, 0, keys, terms);
  const int64_t first = chunk.lo - head.aligned.diagonal(block.lo);
  for (int j = 0; j < keys; ++j) terms.position[j] = static_cast<float>(first + j);
}

}  // namespace fa3::cpu
