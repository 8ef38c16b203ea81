// SPDX-License-Identifier: BSD-3-Clause
// wide_consumer.h — the decode kernel's consumer warpgroups where packed rows are many. Each has 64
// of them, which are the 64 rows of both GEMMs, so that it reads a key once for all of them:
//   S (rows × keys) = Q·Kᵀ        P = softmax over keys, in registers
//   O (rows × head_dim_v) += P·V
// As in the forward's kernel P·V of a tile overlaps the softmax of the next, and a thread has two
// rows, 8 apart, of which it shares each with its quad.
#pragma once

#include "device/attn/conventions.h"
#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/hopper/ring.h"
#include "device/ptx/fence.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/sm90/common/hide_keys.h"
#include "device/sm90/common/row_store.h"
#include "device/sm90/decode/load_q.h"
#include "device/sm90/decode/smem.h"
#include "device/sm90/decode/store.h"
#include "device/sm90/decode/unit.h"
#include "device/warp/alibi.h"
#include "device/warp/fragment.h"
#include "device/warp/score.h"
#include "device/warp/softmax.h"

namespace fa3::sm90 {

// Where a thread's two rows lie, which may be those of two heads; see RowPair.
struct PackedPair {
  i64 at[2];  // elements from the tensor's first; −1: the row does not exist

  FA3_DEV bool exists(int h) const { return at[h] >= 0; }
  FA3_DEV i64 offset(int h, const i64&) const { return at[h]; }
};

template <DecodeConfig kCfg>
struct WideConsumer {
  static_assert(kCfg.stages >= 2, "V of a tile is waited for before that of the last is released");
  static constexpr bool kByParts = kCfg.part_tiles > 0;
  static constexpr SoftmaxVariant kSoftmax{
      .lazy_rescale = true, .test_first = true, .per_row = kByParts};
  static constexpr int kSteps = kCfg.tile_kv / DecodeConfig::kStep;
  static constexpr u32 kBar = 1;  // named barrier of the first
  using Q = KMajorOperand<kCfg.q_tile()>;
  using K = KMajorOperand<kCfg.k_tile()>;
  using V = MnMajorOperand<kCfg.v_tile()>;

  DecodeSmem<kCfg>& smem;
  const DecodeArgs& args;
  u32 index;   // of the consumer, which has packed rows [64 · index, …) of a unit
  u32 thread;  // of the consumer
  Q q;
  K k;
  V v;
  Ring<kCfg.stages> k_ring, v_ring;
  RowSoftmax<kSoftmax> softmax;
  BandMask mask;
  AlibiScore::Row alibi[2];  // positions from the thread's first column on
  ptx::Acc<kCfg.tile_kv> s;  // S, then P
  ptx::Acc<kCfg.head_dim_v> o;
  ptx::AFrag p[kSteps];  // P as an operand

  FA3_DEV WideConsumer(DecodeSmem<kCfg>& smem, const DecodeArgs& args)
      : smem(smem),
        args(args),
        index(ptx::warpgroup_index()),
        thread(ptx::thread_index() % kWgThreads),
        q(tile_at<Q>(smem.consumer[index].q)),
        k(tile_at<K>(smem.k)),
        v(tile_at<V>(smem.v)) {}

  // KV tiles [first, end) of a unit; its part in `slot`, or all of it.
  FA3_DEV void run(const DecodeUnit& unit, i32 first, i32 end, bool whole, u32 slot) {
    begin(unit);
    const i32 from = of_warp(first), to = of_warp(end);
    if (from < to) {
      first_step(unit, tile_in_turn<kCfg>(from, from, to));
      FA3_NO_UNROLL
      for (i32 at = from + 1; at < to; ++at) step(unit, tile_in_turn<kCfg>(at, from, to));
      last_pv();
    }
    softmax.finish();
    store(unit, kCfg.tile_kv * first, kCfg.tile_kv * end, whole, slot);
  }

 private:
  FA3_DEV void sync() const { NamedBarrier{kBar + index, kWgThreads}.sync(); }
  FA3_DEV u32 row_of(int h) const {
    return kWgRows * index + fragment_row(thread) + 8 * static_cast<u32>(h);
  }
  // Through a reduction, so that the compiler sees one value per warp and keeps rings and
  // descriptors in uniform registers.
  FA3_DEV static i32 of_warp(i32 x) { return static_cast<i32>(ptx::redux_or(static_cast<u32>(x))); }
  FA3_DEV PerRow scale_log2() const { return {{args.scale_log2, args.scale_log2}}; }

  // What the thread's rows see, and Q.
  FA3_DEV void begin(const DecodeUnit& unit) {
    softmax.reset();
    o.zero();
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) begin_row(unit, h);
    sync();  // no GEMM reads Q
    load_q<kCfg>(smem.consumer[index].q, args, unit, kWgRows * index, thread);
    ptx::fence_proxy_async_shared();  // sim:spare(wait_kv)
    sync();
  }
  FA3_DEV void begin_row(const DecodeUnit& unit, int h) {
    const auto [query, head] = packed_row(args.shape, unit, row_of(h));
    const i32 column = static_cast<i32>(fragment_column(thread));
    const bool counts = query < unit.q.used;
    const Range<i32> keys =
        keys_of_row(args.shape.template band_of<kCfg.chunks>(), unit.q.used, unit.kv.used, query);
    const bool none = !counts || keys.empty();
    mask.lo[h] = (none ? 0 : keys.lo) - column;
    mask.hi[h] = (none ? 0 : keys.hi) - column;
    if constexpr (kCfg.alibi) {
      float slope = 0.f;
      if (counts)
        slope = ptx::ld_global_nc(args.alibi_slopes + unit.batch * args.slope_batch + head);
      alibi[h] = {-slope * args.slope_factor, query + unit.kv.used - unit.q.used - column};
    }
  }

  FA3_DEV void issue_qk() {
    gemm_ss<kCfg.dtype, kCfg.head_dim_qk / DecodeConfig::kStep>(
        s, q, k.after(k_ring.stage * static_cast<u32>(kCfg.k_tile().bytes())), kOverwrite);
  }
  FA3_DEV void wait_v(const Ring<kCfg.stages>& at) {
    wait_kv<kCfg.kv>(smem.v_full[at.stage], at.phase);
  }
  FA3_DEV void issue_pv() {
    gemm_rs<kCfg.dtype>(o, p, v.after(v_ring.stage * static_cast<u32>(kCfg.v_tile().bytes())),
                        kAccumulate);
  }
  FA3_DEV void wait_pv() {
    gemm_wait<0>(o);
    smem.v_empty[v_ring.stage].arrive_if(thread == 0);  // sim:spare(one_tile)
    v_ring.advance();
  }
  FA3_DEV void release_k() {
    smem.k_empty[k_ring.stage].arrive_if(thread == 0);  // sim:spare(one_tile)
    k_ring.advance();
  }

  FA3_DEV void first_step(const DecodeUnit& unit, i32 tile) {
    wait_kv<kCfg.kv>(smem.k_full[k_ring.stage], k_ring.phase);
    const bool hides = smem.hides_keys(k_ring.stage);
    issue_qk();
    gemm_wait<0>(s);
    release_k();
    apply_score(unit, tile, hides);
    softmax.start(s, s, scale_log2());
    to_operand16<kCfg.dtype>(p, s);
    wait_v(v_ring);
  }
  FA3_DEV void step(const DecodeUnit& unit, i32 tile) {
    wait_kv<kCfg.kv>(smem.k_full[k_ring.stage], k_ring.phase);
    const bool hides = smem.hides_keys(k_ring.stage);
    issue_qk();
    issue_pv();       // of the tile before
    gemm_wait<1>(s);  // K's stage is free; P·V is in flight
    release_k();
    apply_score(unit, tile, hides);
    const RowScale grown = softmax.update(s, s, scale_log2());
    wait_v(v_ring.next());  // of this tile; the exponentials stay above the wait for P·V
    softmax.hold();
    wait_pv();
    to_operand16<kCfg.dtype>(p, s);
    rescale_rows<kSoftmax>(o, grown);
  }
  FA3_DEV void last_pv() {
    issue_pv();
    wait_pv();
  }

  FA3_DEV void apply_score(const DecodeUnit& unit, i32 tile, bool hides) {
    ScoreFunction<kCfg.score>{{{args.score_factor, args.score_factor}}}.apply(s);
    if constexpr (kCfg.alibi) {
      FA3_UNROLL
      for (int h = 0; h < 2; ++h) {
        const AlibiScore::Tile from = AlibiScore::tile(alibi[h], kCfg.tile_kv * tile);
        FA3_UNROLL
        for (int i = 2 * h; i < kCfg.tile_kv / 2; i += 4) {
          s[i] = AlibiScore::score(s[i], from, 2 * i - 4 * h);
          s[i + 1] = AlibiScore::score(s[i + 1], from, 2 * i - 4 * h + 1);
        }
      }
    }
    if (is_masked<kCfg>(unit, tile)) {
      mask.template apply<true>(s, tile);
      if constexpr (kCfg.tree) hide_by_tree(unit, tile);
    }
    if constexpr (kCfg.cached()) {
      const KvCacheArgs& cache = args.shape.cache;
      if (hides)
        hide_keys(s, kCfg.tile_kv * tile, [&](i32 key) {
          return key < unit.kv.used && cache.has(cache.entry_of(unit.batch, unit.kv.begin + key));
        });
    }
  }

  FA3_DEV void hide_by_tree(const DecodeUnit& unit, i32 tile) {
    const i32 first = kCfg.tile_kv * tile + static_cast<i32>(fragment_column(thread)) -
                      (unit.kv.used - unit.q.used);
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      const u64 bits = tree_bits(args, unit, packed_row(args.shape, unit, row_of(h)).query);
      FA3_UNROLL
      for (int i = 2 * h; i < kCfg.tile_kv / 2; i += 4) {
        FA3_UNROLL
        for (int n = 0; n < 2; ++n)
          if (!tree_shows(bits, first + 2 * i - 4 * h + n)) s[i + n] = -kInf;
      }
    }
  }

  // What stands for the part of row h beside O.
  FA3_DEV void store_part(u32 at, int h, float lse) const {
    using Two = ptx::Vec<float, 2>;
    if constexpr (kByParts)
      ptx::st_global(reinterpret_cast<Two*>(args.parts.lse) + at,
                     Two{{softmax.max[h], softmax.sum[h]}});
    else
      ptx::st_global(args.parts.lse + at, lse);
  }
  // O / sum and LSE of the thread's rows; 0 and −∞ where they see no key of [first_key, end_key).
  FA3_DEV void store(const DecodeUnit& unit, i32 first_key, i32 end_key, bool whole, u32 slot) {
    const u32 lane = ptx::lane_index(), column = fragment_column(lane);
    PackedPair to_o{{-1, -1}};
    float inverse[2];
    bool nothing[2];
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      const PackedRow row = packed_row(args.shape, unit, row_of(h));
      const i32 lo = mask.lo[h] + static_cast<i32>(column);
      const i32 hi = mask.hi[h] + static_cast<i32>(column);
      nothing[h] = fa3::max(lo, first_key) >= fa3::min(hi, end_key);
      if (kCfg.cached() || kCfg.tree || !whole) nothing[h] = nothing[h] || softmax.sum[h] == 0.f;
      const float sink = whole ? sink_of(args.out, unit, row) : -kInf;
      const SumWithSink all(softmax.sum[h], sink, softmax.above_offset(h, sink, scale_log2()));
      softmax.sum[h] = all.sum;
      inverse[h] = kByParts && !whole ? 1.f : all.inverse;
      if (row.query >= unit.q.rows) continue;
      const float lse = nothing[h] ? -kInf : softmax.lse(h, scale_log2());
      if (whole) {
        const RowPlace place = place_of(args.out, args.shape, unit, row);
        to_o.at[h] = place.o;
        if (lane % 4 == 0) store_lse(args.out, place, lse_with_sink(nothing[h], lse, sink));
      } else {
        const u32 at = slot * kCfg.rows + row_of(h);
        to_o.at[h] = i64{at} * kCfg.head_dim_v;
        if (lane % 4 == 0) store_part(at, h, lse);
      }
    }
    normalise_rows(o, inverse, nothing);
    const i64 no_stride = 0;
    if (!whole || kCfg.o_f32) {
      float* const to = whole ? static_cast<float*>(args.out.o) : args.parts.o;
      const i32 columns = whole ? args.out.head_dim_v : kCfg.head_dim_v;
      store_o_f32(to + column, no_stride, to_o, o, columns);
    } else {
      store_o_16<kCfg.dtype>(static_cast<u16*>(args.out.o), no_stride, to_o, o,
                             args.out.head_dim_v);
    }
  }
};

}  // namespace fa3::sm90
