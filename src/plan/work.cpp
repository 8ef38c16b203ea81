// SPDX-License-Identifier: BSD-3-Clause
// work.cpp — visible pairs in closed form.
#include "plan/work.h"

#include <algorithm>

#include "device/attn/kv_range.h"

namespace fa3 {
namespace {

// Σ over i in [0, n) of clamp(i + offset, 0, limit). Up to 2^31 terms below 2^31: 63 bits hold it.
int64_t sum_of_clamped(int64_t n, int64_t offset, int64_t limit) {
  const int64_t first = std::clamp<int64_t>(-offset, 0, n);            // terms before it are 0
  const int64_t last = std::clamp<int64_t>(limit - offset, first, n);  // terms from it on are limit
  const int64_t ramp = last - first;
  return ramp * (first + offset) + ramp * (ramp - 1) / 2 + (n - last) * limit;
}

// Keys that queries [0, len_q) of one sequence see. Query i stands at p = i + len_kv − len_q and
// sees [p − left, p + right] ∩ [0, len_kv): the clamped end less the clamped beginning.
int64_t visible_pairs(const Problem& p, int64_t len_q, int64_t len_kv) {
  const bool window = p.mask == FA3_MASK_WINDOW;
  const bool all_before = !window || p.left < 0;
  const bool all_after = p.mask == FA3_MASK_FULL || (window && p.right < 0);
  const int64_t position = p.top_left ? 0 : len_kv - len_q;  // of query 0
  const int64_t ends =
      all_after ? len_q * len_kv : sum_of_clamped(len_q, position + p.right + 1, len_kv);
  const int64_t begins = all_before ? 0 : sum_of_clamped(len_q, position - p.left, len_kv);
  return ends - begins;
}

}  // namespace

// More keys, or more queries before the given ones, never give fewer pairs. So a sequence of the
// longest lengths bounds each one, and the longest number of keys bounds each query.
Work work_of(const Problem& p) {
  Work work;
  const double sequence = static_cast<double>(visible_pairs(p, p.q.max_seqlen, p.kv.max_seqlen));
  double pairs = sequence * static_cast<double>(p.batch);
  if (p.q.varlen) {
    pairs = std::min(pairs, static_cast<double>(p.q.rows) * static_cast<double>(p.kv.max_seqlen));
  }
  if (p.kv.varlen && !p.cache.begins) {  // without rows that sequences share
    pairs = std::min(pairs, static_cast<double>(p.kv.rows) * static_cast<double>(p.q.max_seqlen));
  }
  work.pairs = pairs * static_cast<double>(p.heads_q);
  work.flops = 2 * work.pairs * static_cast<double>(p.head_dim_qk + p.head_dim_v);
  if (p.op == FA3_OP_BACKWARD) work.flops *= 2.5;
  work.exact = !has_lengths(p) && !p.has_sequence_ids() && !p.has_mask();
  return work;
}

Tiles tiles_of(const Problem& p, int64_t tile_q, int64_t tile_kv) {
  const Band band{p.mask == FA3_MASK_WINDOW ? p.left : Band::kUnbounded,
                  p.mask == FA3_MASK_FULL ? Band::kUnbounded : p.right};
  const SeqLens len{p.top_left ? p.kv.max_seqlen : p.q.max_seqlen, p.kv.max_seqlen};
  const int64_t rows = p.q.max_seqlen;
  int64_t visited = 0, all = 0;
  for (int64_t row = 0; row < rows; row += tile_q) {
    const IndexRange keys = visible_keys(band, len, IndexRange{row, min(row + tile_q, rows)});
    if (!keys.empty()) visited += div_up(keys.hi, tile_kv) - keys.lo / tile_kv;
    all += div_up(len.kv, tile_kv);
  }
  const double heads = static_cast<double>(p.batch) * static_cast<double>(p.heads_q);
  return {static_cast<double>(visited) * heads, static_cast<double>(all - visited) * heads};
}

}  // namespace fa3
