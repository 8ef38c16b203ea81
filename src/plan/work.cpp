// SPDX-License-Identifier: BSD-3-Clause
// work.cpp — visible pairs in closed form.
#include "plan/work.h"

#include <algorithm>

#include "device/attn/kv_range.h"
#include "plan/kernel_numbers.h"

namespace fa3 {
namespace {

// Σ over i in [0, n) of clamp(i + offset, 0, limit). Up to 2^31 terms below 2^31: 63 bits hold it.
int64_t sum_of_clamped(int64_t n, int64_t offset, int64_t limit) {
  const int64_t first = std::clamp<int64_t>(-offset, 0, n);            // terms before it are 0
  const int64_t last = std::clamp<int64_t>(limit - offset, first, n);  // terms from it on are limit
  const int64_t ramp = last - first;
  return ramp * (first + offset) + ramp * (ramp - 1) / 2 + (n - last) * limit;
}

// Keys of `keys` that `queries` consecutive queries see, the first at position p, but for chunks:
// [p − left, p + right] ∩ [0, keys), the clamped end less the clamped beginning.
int64_t pairs_in_band(const Band& band, int64_t p, int64_t queries, int64_t keys) {
  const int64_t ends = band.right == Band::kUnbounded
                           ? queries * keys
                           : sum_of_clamped(queries, p + band.right + 1, keys);
  const int64_t begins =
      band.left == Band::kUnbounded ? 0 : sum_of_clamped(queries, p - band.left, keys);
  return ends - begins;
}

// Of a sequence whose first query stands at position p.
int64_t visible_pairs(const Band& band, int64_t p, int64_t queries, int64_t keys) {
  if (!band.chunks.any()) return pairs_in_band(band, p, queries, keys);
  // Queries at positions [lo, hi), of chunks that have keys: chunk by chunk, and but for the first
  // and the last, which may be cut, all chunks have as many.
  const int64_t c = band.chunks.keys, lo = max(p, 0), hi = min(p + queries, div_up(keys, c) * c);
  if (lo >= hi) return 0;
  const auto of_chunk = [&](int64_t chunk) {
    const int64_t begin = chunk * c, first = max(lo, begin), last = min(hi, begin + c);
    return pairs_in_band(band, first - begin, last - first, min(keys - begin, c));
  };
  const int64_t first = lo / c, last = (hi - 1) / c;
  if (first == last) return of_chunk(first);
  const int64_t between = last - first - 1;
  return of_chunk(first) + of_chunk(last) + (between > 0 ? between * of_chunk(first + 1) : 0);
}

}  // namespace

// More keys, or more queries before the given ones, never give fewer pairs. So a sequence of the
// longest lengths bounds each one, and the longest number of keys bounds each query.
Work work_of(const Problem& p) {
  Work work;
  const int64_t queries = p.q.max_seqlen, keys = p.kv.max_seqlen;
  const double sequence = static_cast<double>(
      visible_pairs(exact_band_of(p), p.top_left ? 0 : keys - queries, queries, keys));
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
  const Band band = exact_band_of(p);
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
