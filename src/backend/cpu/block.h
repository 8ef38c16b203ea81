// SPDX-License-Identifier: BSD-3-Clause
// block.h — what the forward and the backward of the cpu backend share: addresses of rows, the
// score scale, and masks as spans of a block.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "backend/cpu/kernels.h"
#include "core/dtype.h"
#include "core/problem.h"
#include "device/attn/conventions.h"
#include "device/attn/kv_range.h"
#include "plan/kernel_numbers.h"

namespace fa3::cpu {

inline constexpr double kLog2eExact = 1.4426950408889634;

// How raw scores Q·Kᵀ become exponents. Kernels want a positive scale, so a negative one moves into
// Q as sign −1.
struct ScoreScale {
  float sign = 1;         // factor of Q
  double scale = 1;       // natural-log units per stored score (raw, or tanh(…) with softcap)
  float scale_log2e = 1;  // scale·log2(e)
  float softcap_in = 0;   // stored score = tanh(raw·softcap_in); 0 = raw
  // From LSE to the exponents of the backward: not log2(e) but what scale_log2e, rounded, makes of
  // it. A score near LSE then has the same rounding of the scale as LSE, and it cancels.
  double lse_log2 = 1;
  // With ALiBi the terms bring scores to units of log2 (see ScoreTerms), whose scale is then ln(2).
  // With a mask to units of e, in which its values are given: the greatest of them times log2(e)
  // would be Inf.
  double unit = 1;  // of ALiBi or mask: what 1 is in these units
  float term_high = 1;
  float term_low = 0;

  explicit ScoreScale(const Problem& p) {
    const double given = std::fabs(p.softmax_scale);
    if (p.softmax_scale < 0) sign = -1.0f;
    scale = p.softcap > 0 ? p.softcap : given;
    // Not 0, where −inf · 0 would be NaN and softcap would look off: the least float makes p = 1
    // too.
    const auto positive = [](double x) { return std::max(static_cast<float>(x), FLT_MIN); };
    scale_log2e = positive(scale * kLog2eExact);
    if (p.softcap > 0) softcap_in = positive(given / p.softcap);
    lse_log2 = scale_log2e > FLT_MIN ? scale_log2e / scale : kLog2eExact;
    if (!p.has_alibi() && !p.hides_by_row()) return;
    unit = p.hides_by_row() ? 1 : kLog2eExact;
    constexpr float kHuge =
        0x1p50f;  // from here on scale_low could overflow where it meets a score
    term_high = positive(scale * unit);
    if (term_high > FLT_MIN && term_high < kHuge)
      term_low = static_cast<float>(scale * unit - term_high);
    scale = 1 / unit;
    scale_log2e = positive(kLog2eExact / unit);
    lse_log2 = p.hides_by_row() ? double{scale_log2e} : kLog2eExact;
  }
};

// Rows of the longest sequence. A plan knows a bound only, and where that is the rows of all
// sequences, most of its tasks would find nothing to do.
inline int64_t longest(const SeqAxis& axis, const int32_t* cu_seqlens, int64_t batch) {
  if (!axis.varlen) return axis.rows;
  int64_t rows = 0;
  for (int64_t b = 0; b < batch; ++b)
    rows = std::max<int64_t>(rows, cu_seqlens[b + 1] - cu_seqlens[b]);
  return rows;
}
inline int64_t longest_q(const Problem& p, const Buffers& x) {
  return longest(p.q, x.in<int32_t>(kCuSeqlensQ), p.batch);
}
inline int64_t longest_kv(const Problem& p, const Buffers& x) {
  return longest(p.kv, x.in<int32_t>(kCuSeqlensKv), p.batch);
}

// Element (row of a sequence that begins at `begin`, head) of a tensor.
template <class T>
T* element(const Layout& layout, void* data, int64_t b, int64_t begin, int64_t row, int64_t head) {
  const int64_t offset = b * layout.batch + (begin + row) * layout.row + head * layout.head;
  return reinterpret_cast<T*>(static_cast<char*>(data) + offset * dtype_bytes(layout.dtype));
}

// One (sequence, KV head) of a run, by its number.
struct KvHead {
  int64_t b;
  int64_t h_kv;
  int64_t entry;  // of K and V, unless they lie in pages
  Sequence q_seq;
  Sequence kv_seq;
  SeqLens len;
  // Lengths that put queries at their positions, and keys at theirs among the queries: of top-left
  // alignment those of squares.
  SeqLens aligned, mirrored;
  // Sequence ids of the rows of each, one after another; nullptr = none.
  const int32_t* q_ids = nullptr;
  const int32_t* kv_ids = nullptr;

  KvHead(const Problem& p, const Buffers& buffers, int64_t index)
      : b(index / p.heads_kv),
        h_kv(index % p.heads_kv),
        entry(p.cache.slots ? buffers.in<int32_t>(kKvBatchIdx)[b] : b),
        q_seq(q_sequence(p, buffers, b)),
        kv_seq(kv_sequence(p, buffers, b)),
        len{q_seq.len, kv_seq.len},
        aligned{p.top_left ? kv_seq.len : q_seq.len, kv_seq.len},
        mirrored{q_seq.len, p.top_left ? q_seq.len : kv_seq.len} {
    if (!p.has_sequence_ids()) return;
    q_ids = element<int32_t>(p.layout[kSequenceIdsQ], buffers.data[kSequenceIdsQ], b, q_seq.begin,
                             0, 0);
    kv_ids = element<int32_t>(p.layout[kSequenceIdsKv], buffers.data[kSequenceIdsKv], b,
                              kv_seq.begin, 0, 0);
  }

  // Queries of the sequence that see some key, or one.
  template <class Keys>
  IndexRange queries_of(Band band, Keys keys) const {
    return visible_queries(band, mirrored, keys);
  }
};

// `rows` rows from there, in the form that kernels read.
inline Rows rows_at(const Layout& layout, void* data, int64_t b, int64_t begin, int64_t row,
                    int64_t head, int rows, int64_t cols) {
  return {element<char>(layout, data, b, begin, row, head), layout.dtype, layout.row, rows,
          static_cast<int>(cols)};
}

// −slope·unit of a query head as the sum of two floats, for `count` rows from `row` on.
inline void set_slopes(const Problem& p, const Buffers& buffers, int64_t b, int64_t h, int row,
                       int count, ScoreTerms& terms) {
  const double unit = p.hides_by_row() ? 1 : kLog2eExact;
  const float slope =
      *element<float>(p.layout[kAlibiSlopes], buffers.data[kAlibiSlopes], b, 0, 0, h);
  const double exact = -unit * slope;
  // A finite slope stays finite: times distance 0 it is 0, Inf would be NaN.
  const float high = std::isfinite(slope)
                         ? static_cast<float>(std::clamp<double>(exact, -FLT_MAX, FLT_MAX))
                         : static_cast<float>(exact);
  const float low = std::fabs(high) < FLT_MAX ? static_cast<float>(exact - high) : 0.0f;
  std::fill_n(terms.slope_high + row, count, high);
  std::fill_n(terms.slope_low + row, count, low);
}

// What is visible of tile, relative to its first index.
inline Span local_span(IndexRange visible, IndexRange tile) {
  const IndexRange seen = intersect(visible, tile);
  if (seen.empty()) return {};
  return {static_cast<int32_t>(seen.lo - tile.lo), static_cast<int32_t>(seen.hi - tile.lo)};
}

// Union per tile of kTileRows rows (rows is a multiple of it), rounded out to multiples of `unit`.
// False when all are empty.
inline bool join_spans(const Span* row, int rows, int unit, Span* tile) {
  bool any = false;
  for (int r = 0; r < rows; r += kTileRows) {
    Span join;
    for (int i = r; i < r + kTileRows; ++i) {
      if (row[i].empty()) continue;
      join =
          join.empty() ? row[i] : Span{std::min(join.lo, row[i].lo), std::max(join.hi, row[i].hi)};
    }
    tile[r / kTileRows] = {join.lo / unit * unit, (join.hi + unit - 1) / unit * unit};
    any = any || !join.empty();
  }
  return any;
}

}  // namespace fa3::cpu
