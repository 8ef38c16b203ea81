// SPDX-License-Identifier: BSD-3-Clause
// narrow_end.h — the end of a unit in which keys were the rows of GEMMs: what its packed rows are
// normalised by, and O on its way from shared memory to the tensor, to the parts that combine()
// merges, or to the cluster. Consumers that took turns at KV tiles are merged first.
#pragma once

#include "device/attn/conventions.h"
#include "device/hopper/barrier.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/sm90/decode/smem.h"
#include "device/sm90/decode/store.h"
#include "device/sm90/decode/unit.h"
#include "device/warp/softmax.h"

namespace fa3::sm90 {

FA3_DEV float or_zero(float x) { return x == -kInf ? 0.f : x; }

// What exponents of scores are relative to.
struct ExponentOffset {
  float log2;      // subtracted from exponents
  float of_score;  // subtracted from scores, where the other would be huge
  bool huge;

  FA3_DEV static ExponentOffset of(float max, float scale_log2) {
    const float log2 = or_zero(max) * scale_log2;
    const bool huge = is_huge(log2);
    return {huge ? 0.f : log2, huge ? or_zero(max) : 0.f, huge};
  }
};

// What P is multiplied by where it is F16, so that weights to 2^−31 of the greatest count.
template <DecodeConfig kCfg>
FA3_HD constexpr float p_scale() {
  return kCfg.kv8 ? 128.f : 1.f;
}

template <DecodeConfig kCfg>
struct NarrowEnd {
  static constexpr int kN = kCfg.consumer_rows();
  static constexpr bool kByParts = kCfg.part_tiles > 0, kInTurns = kCfg.in_turns;
  static constexpr u32 kThreads = kInTurns ? kWgThreads * kCfg.consumers : kWgThreads;
  static constexpr u32 kBar = 1;  // named barrier of the first consumer; behind the last, of all
  using Two = ptx::Vec<float, 2>;

  DecodeSmem<kCfg>& smem;
  const DecodeArgs& args;
  const DecodeUnit& unit;
  u32 index, of_consumer;  // this consumer, and its thread
  u32 thread = kInTurns ? kWgThreads * index + of_consumer : of_consumer;
  DecodeConsumerSmem<kCfg>& own = smem.consumer[kInTurns ? 0 : index];

  // Sums, maxima and O of KV tiles [first, end) are in shared memory.
  FA3_DEV void run(i32 first, i32 end, bool whole, u32 slot) const {
    if constexpr (kInTurns) sync();
    if (thread < kN) place_o(thread, kCfg.tile_kv * first, kCfg.tile_kv * end, whole, slot);
    if constexpr (kCfg.clusters && !kInTurns) return;  // it is merged by the cluster
    sync();                                            // O is there
    if constexpr (kCfg.clusters) return gather_o();
    store_o(whole);
    sync();  // and has been read
  }

 private:
  FA3_DEV void sync() const {
    NamedBarrier{kInTurns ? kBar + kCfg.consumers : kBar + index, kThreads}.sync();
  }

  // A row's maximum and sum of P.
  struct Total {
    float most, sum;
  };
  FA3_DEV Total total_of(const DecodeConsumerSmem<kCfg>& consumer, u32 r) const {
    Total total{ptx::ld_shared(&consumer.most[r]), 0.f};
    FA3_UNROLL
    for (int w = 0; w < DecodeConfig::kWarps; ++w)
      total.sum += ptx::ld_shared(&consumer.number[w][r]);
    return total;
  }
  // Those of all consumers together; and what O of each is multiplied by.
  FA3_DEV Total merged_total(u32 r) const {
    if constexpr (!kInTurns) return total_of(own, r);
    Total of[kCfg.consumers], all{-kInf, 0.f};
    FA3_UNROLL
    for (int c = 0; c < kCfg.consumers; ++c) {
      of[c] = total_of(smem.consumer[c], r);
      all.most = ptx::max(all.most, of[c].most);
    }
    const ExponentOffset offset = ExponentOffset::of(all.most, args.scale_log2);
    FA3_UNROLL
    for (int c = 0; c < kCfg.consumers; ++c) {
      const float weight = kByParts ? raised_scale(of[c].most, or_zero(all.most), offset.log2,
                                                   offset.huge, args.scale_log2)
                                    : ptx::ex2((of[c].most - or_zero(all.most)) * args.scale_log2);
      const bool none = of[c].sum == 0.f;
      all.sum += none ? 0.f : of[c].sum * weight;
      // Not 0, which stands for a consumer that saw no key: see place_o().
      ptx::st_shared(&smem.consumer[c].weight()[r], none            ? 0.f
                                                    : weight == 0.f ? 0x1p-149f
                                                                    : weight);
    }
    return all;
  }

  // Where row r of O goes and what it is multiplied by, 0 where it has no weight, whatever its
  // columns are; and its LSE.
  FA3_DEV void place_o(u32 r, i32 first_key, i32 end_key, bool whole, u32 slot) const {
    const DecodeRow row = own.row[r].read();
    const auto [most, all] = merged_total(r);
    bool nothing = fa3::max(row.lo, first_key) >= fa3::min(row.hi, end_key);
    if (kCfg.cached() || kCfg.tree || !whole) nothing = nothing || all == 0.f;
    if (args.out.max_logit.asked() && row.query >= 0 && !nothing)
      args.out.max_logit.raise(row.head, most * (args.scale_log2 * kLn2));
    const float lse = nothing ? -kInf : lse_of(most, all);
    const float of_v = scale_of_values();
    float factor = nothing ? 0.f : kByParts && !whole ? of_v : of_v * ptx::rcp(all);
    if constexpr (kCfg.clusters) {
      ptx::st_shared(&own.factor()[r], factor);
      ptx::st_shared(&own.lse()[r], lse);
      return;
    }
    i64 to = -1;
    if (row.query >= 0 && whole) {
      const PackedRow packed{row.query, row.head};
      const RowPlace place = place_of(args.out, args.shape, unit, packed);
      to = place.o;
      const float sink = sink_of(args.out, unit, packed);
      const float offset = or_zero(most) * args.scale_log2;
      const SumWithSink sums(all, sink, ptx::fma(sink, kLog2e, -offset));
      // Not 0, which stands for a row without weight: a NaN in a value that it sees reaches it.
      const float inverse = of_v * sums.inverse;
      if (!nothing) factor = inverse == 0.f ? 0x1p-149f : inverse;
      const float of_sum = nothing ? -kInf : lse_of(most, sums.sum);
      store_lse(args.out, place, lse_with_sink(nothing, of_sum, sink));
    } else if (row.query >= 0) {
      const u32 at = slot * kCfg.rows + (kInTurns ? 0 : kN * index) + r;
      to = i64{at} * kCfg.head_dim_v;
      if constexpr (kByParts)
        ptx::st_global(reinterpret_cast<Two*>(args.parts.lse) + at, Two{{most, all}});
      else
        ptx::st_global(args.parts.lse + at, lse);
    }
    ptx::st_shared(&own.factor()[r], factor);
    ptx::st_shared(&own.to[r], to);
  }
  // What O of P and codes is multiplied by.
  FA3_DEV float scale_of_values() const {
    if (!kCfg.kv8) return 1.f;
    const bool exists = unit.batch < args.shape.batch;  // else rows of no sequence
    return (exists ? args.v_scale.of(unit.batch, unit.kv_head) : 1.f) * (1 / p_scale<kCfg>());
  }
  FA3_DEV float lse_of(float most, float all) const {
    if constexpr (kByParts) return row_lse(most, all, args.scale_log2);
    return ptx::fma(or_zero(most), args.scale_log2 * kLn2, ptx::lg2(all) * kLn2);
  }

  // Four columns of O of a row, of all consumers.
  FA3_DEV Four four_of(u32 r, u32 column) const {
    const u32 at = r * kCfg.o_width() + column;
    Four x = ptx::ld_shared(reinterpret_cast<const Four*>(own.o() + at));
    if constexpr (kInTurns) {
      const float of_first = ptx::ld_shared(&own.weight()[r]);
      FA3_UNROLL
      for (int n = 0; n < 4; ++n) x[n] = of_first == 0.f ? 0.f : x[n] * of_first;
      FA3_UNROLL
      for (int c = 1; c < kCfg.consumers; ++c) {
        const float weight = ptx::ld_shared(&smem.consumer[c].weight()[r]);
        const Four y = ptx::ld_shared(reinterpret_cast<const Four*>(smem.consumer[c].o() + at));
        FA3_UNROLL
        for (int n = 0; n < 4; ++n) x[n] += weight == 0.f ? 0.f : y[n] * weight;
      }
    }
    return x;
  }
  // In a loop: unrolled, its code takes longer to come than O to leave.
  FA3_DEV void store_o(bool whole) const {
    constexpr u32 kFours = kCfg.head_dim_v / 4;
    const i32 columns = whole ? args.out.head_dim_v : kCfg.head_dim_v;
    FA3_NO_UNROLL
    for (u32 at = thread; at < kN * kFours; at += kThreads) {
      const u32 r = at / kFours, column = at % kFours * 4;
      const i64 to = ptx::ld_shared(&own.to[r]);
      if (to < 0 || static_cast<i32>(column) >= columns) continue;
      const float scale = ptx::ld_shared(&own.factor()[r]);
      Four x = four_of(r, column);
      FA3_UNROLL
      for (int n = 0; n < 4; ++n) x[n] = scale == 0.f ? 0.f : x[n] * scale;
      if (whole) {
        store_four<kCfg.dtype, kCfg.o_f32>(args.out, to + column, x);
      } else {
        ptx::st_global(reinterpret_cast<Four*>(args.parts.o + to + column), x);
      }
    }
  }
  // O of all consumers in the place of the first one's.
  FA3_DEV void gather_o() const {
    constexpr u32 kFours = kCfg.head_dim_v / 4;
    FA3_NO_UNROLL
    for (u32 at = thread; at < kN * kFours; at += kThreads) {
      const u32 r = at / kFours, column = at % kFours * 4;
      ptx::st_shared(reinterpret_cast<Four*>(own.o() + r * kCfg.o_width() + column),
                     four_of(r, column));
    }
  }
};

}  // namespace fa3::sm90
