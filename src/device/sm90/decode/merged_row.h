// SPDX-License-Identifier: BSD-3-Clause
// merged_row.h — a row whose parts a warp has merged: lanes have its columns, 4 neighbours each,
// every 128th four.
#pragma once

#include "device/attn/conventions.h"
#include "device/ptx/math.h"
#include "device/ptx/warp.h"
#include "device/sm90/decode/args.h"
#include "device/sm90/decode/config.h"
#include "device/sm90/decode/store.h"
#include "device/sm90/decode/unit.h"

namespace fa3::sm90 {

template <CombineConfig kCfg>
struct MergedRow {
  static constexpr int kFours = static_cast<int>(div_up(kCfg.head_dim_v, 128));

  FA3_DEV static i32 column(int c) { return 128 * c + 4 * static_cast<i32>(ptx::lane_index()); }
};

// Whether a row sees any key; else O = 0.
template <CombineConfig kCfg>
FA3_DEV bool sees_any(const DecodeShape& shape, const DecodeUnit& unit, i32 query) {
  return query < unit.q.used &&
         !keys_of_row(shape.band_of<kCfg.chunks>(), unit.q.used, unit.kv.used, query).empty();
}

// O, not normalised yet, of the unit's row, and its sum; `of` knows what that is relative to:
// MergedSum, say. In a cache, keys may lie nowhere, and a tree may show none: the sum is 0 then;
// with a NaN among the scores it is one.
template <CombineConfig kCfg, class Of>
FA3_DEV void store_row(const CombineArgs& args, const DecodeUnit& unit, u32 row,
                       Four (&o)[MergedRow<kCfg>::kFours], float sum, const Of& of) {
  const PackedRow from = packed_row(args.shape, unit, row);
  const bool may_be_none = kCfg.cached() || args.in_trees;
  const bool nothing = !sees_any<kCfg>(args.shape, unit, from.query) || (may_be_none && sum == 0.f);
  const RowPlace to = place_of(args.out, args.shape, unit, from);
  const float sink = sink_of(args.out, unit, from);
  const SumWithSink all(sum, sink, of.log2_of(sink));
  FA3_UNROLL
  for (int c = 0; c < MergedRow<kCfg>::kFours; ++c) {
    FA3_UNROLL
    for (int n = 0; n < 4; ++n) o[c][n] = nothing ? 0.f : o[c][n] * all.inverse;
    const i32 column = MergedRow<kCfg>::column(c);
    if (column < args.out.head_dim_v)
      store_four<kCfg.dtype, kCfg.o_f32>(args.out, to.o + column, o[c]);
  }
  if (ptx::lane_index() == 0)
    store_lse(args.out, to, lse_with_sink(nothing, nothing ? -kInf : of.lse(all.sum), sink));
}

}  // namespace fa3::sm90
