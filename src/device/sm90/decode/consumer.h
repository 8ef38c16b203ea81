// SPDX-License-Identifier: BSD-3-Clause
// consumer.h — the decode kernel's consumer warpgroups, each with some of the packed rows. Keys are
// the 64 rows of both GEMMs and packed rows their columns, so that few rows cost few columns:
//   Sᵀ (keys × rows) = K·Qᵀ        Pᵀ = softmax over keys, through shared memory
//   Oᵀ (head_dim_v × rows) += Vᵀ·Pᵀ
// A thread holds, of both, column 8j + 2(lane % 4) + e as number 2j + e: its maxima, sums and O are
// of the same rows. Nothing that a row's bits depend on is decided by other rows. O leaves through
// shared memory.
#pragma once

#include "device/attn/conventions.h"
#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/hopper/ring.h"
#include "device/ptx/fence.h"
#include "device/ptx/math.h"
#include "device/ptx/matrix.h"
#include "device/ptx/memory.h"
#include "device/ptx/warp.h"
#include "device/sm90/decode/load_q.h"
#include "device/sm90/decode/narrow_end.h"
#include "device/sm90/decode/smem.h"
#include "device/sm90/decode/unit.h"
#include "device/sm90/decode/widened_gemms.h"
#include "device/sm90/decode/widened_q.h"
#include "device/warp/fragment.h"
#include "device/warp/score.h"
#include "device/warp/softmax.h"

namespace fa3::sm90 {

template <DecodeConfig kCfg>
struct DecodeConsumer {
  static constexpr int kN = kCfg.consumer_rows(), kColumns = kN / 4;  // columns of a thread
  static constexpr u32 kBar = 1;                                      // named barrier of the first
  static constexpr bool kByParts = kCfg.part_tiles > 0;
  static constexpr i32 kTurns = kCfg.in_turns ? kCfg.consumers : 1;
  // So that a stage is always the same consumer's.
  static_assert(kCfg.stages % kTurns == 0 && (kTurns == 1 || kCfg.part_tiles == 0));
  static constexpr float kPScale = p_scale<kCfg>();
  using Q = KMajorOperand<kCfg.q_tile()>;
  using K = KMajorOperand<kCfg.k_tile()>;
  using V = MnMajorOperand<kCfg.v_tile()>;

  DecodeSmem<kCfg>& smem;
  const DecodeArgs& args;
  u32 index;      // of the consumer
  u32 first_row;  // of a unit's packed rows, of which it has kN
  DecodeConsumerSmem<kCfg>& own;
  u32 thread, warp, lane;  // of the consumer
  Q q;
  K k;
  V v;
  PTile<kN> p;
  Ring<kCfg.stages> k_ring, v_ring;
  bool v_pending = false;  // P·V of the tile before is in flight
  i32 before = 0;          // KV tiles of the units before, modulo kTurns
  float max[kColumns], sum[kColumns];
  float of_codes[kCfg.kv8 ? kColumns : 1];  // what scores of E4M3 keys are multiplied by
  ptx::Acc<kN> s[kCfg.key_blocks()], o[kCfg.o_blocks()];
  WidenedGemms<kCfg> widened;  // with kv8

  FA3_DEV DecodeConsumer(DecodeSmem<kCfg>& smem, const DecodeArgs& args)
      : smem(smem),
        args(args),
        index(ptx::warpgroup_index() % kCfg.consumers),  // producers make one, too
        first_row(kCfg.in_turns ? 0 : kN * index),
        own(smem.consumer[index]),
        thread(ptx::thread_index() % kWgThreads),
        warp(ptx::warp_index() % DecodeConfig::kWarps),
        lane(ptx::lane_index()),
        q(tile_at<Q>(own.q)),
        k(tile_at<K>(smem.k)),
        v(tile_at<V>(smem.v)),
        p(tile_at<PTile<kN>>(own.p)),
        widened(warp, lane) {
    if constexpr (kCfg.in_turns) k_ring.skip(index), v_ring.skip(index);
  }

  FA3_DEV void sync() const { NamedBarrier{kBar + index, kWgThreads}.sync(); }
  FA3_DEV static int column(int i) { return 8 * (i / 2) + i % 2; }  // beyond the thread's first
  FA3_DEV DecodeRow row_of(int i) const { return own.row[column_index(i)].read(); }

  // KV tiles [first, end) of a unit; its part in `slot`, or all of it.
  FA3_DEV void run(const DecodeUnit& unit, i32 first, i32 end, bool whole, u32 slot) {
    begin(unit);
    i32 at = first;
    if constexpr (kCfg.in_turns) {
      at += (static_cast<i32>(index) + kTurns - before) % kTurns;
      before = (before + end - first) % kTurns;
    }
    FA3_NO_UNROLL
    for (; at < end; at += kTurns) {
      const i32 tile = tile_in_turn<kCfg>(at, first, end);
      step(unit, tile, is_masked<kCfg>(unit, tile));
    }
    finish();
    spread_o();
    NarrowEnd<kCfg>{smem, args, unit, index, thread}.run(first, end, whole, slot);
  }
  // What the tile's rows are, and Q.
  FA3_DEV void begin(const DecodeUnit& unit) {
    FA3_UNROLL
    for (int i = 0; i < kColumns; ++i) max[i] = -kInf, sum[i] = 0.f;
    FA3_UNROLL
    for (int m = 0; m < kCfg.o_blocks(); ++m) o[m].zero();
    for (u32 r = thread; r < kN; r += kWgThreads) place_row(unit, r);
    if constexpr (kCfg.kv8)
      WidenedQ<kCfg>{own, args, unit}.load(first_row, thread);
    else
      load_q<kCfg>(own.q, args, unit, first_row, thread);
    if constexpr (!kCfg.by_warps())     // which load Q
      ptx::fence_proxy_async_shared();  // sim:spare(wait_kv)
    sync();
    if constexpr (kCfg.kv8) {
      FA3_UNROLL
      for (int i = 0; i < kColumns; ++i)
        of_codes[i] = ptx::ld_shared(&own.of_codes[column_index(i)]) *
                      ptx::ld_shared(&own.of_q[column_index(i)]);
    }
  }
  FA3_DEV void place_row(const DecodeUnit& unit, u32 r) {
    const auto [query, head] = packed_row(args.shape, unit, first_row + r);
    const bool exists = query < unit.q.rows;
    const bool counts = query < unit.q.used;
    DecodeRow row{};
    row.query = exists ? query : -1;
    row.head = head;
    row.position = query + unit.kv.used - unit.q.used;
    if (counts) {
      const Range<i32> keys =
          keys_of_row(args.shape.template band_of<kCfg.chunks>(), unit.q.used, unit.kv.used, query);
      row.lo = keys.empty() ? 0 : keys.lo, row.hi = keys.empty() ? 0 : keys.hi;
      if constexpr (kCfg.alibi)
        row.slope = -args.slope_factor *
                    ptx::ld_global_nc(args.alibi_slopes + unit.batch * args.slope_batch + row.head);
    }
    if constexpr (kCfg.kv8) ptx::st_shared(&own.of_codes[r], scale_of_codes(unit, head));
    own.row[r].write(row);
  }
  FA3_DEV float scale_of_codes(const DecodeUnit& unit, i32 head) const {
    if (unit.batch >= args.shape.batch) return 1.f;  // rows of no sequence
    return args.k_scale.of(unit.batch, unit.kv_head) *
           args.q_scale.of(unit.batch, args.q_scale_of_group ? unit.kv_head : head);
  }
  FA3_DEV void step(const DecodeUnit& unit, i32 tile, bool masked) {
    if constexpr (kCfg.kv8)
      step_of_codes(unit, tile, masked);
    else
      step_of_16_bits(unit, tile, masked);
  }
  // K and V in E4M3: operands from registers.
  FA3_DEV void step_of_codes(const DecodeUnit& unit, i32 tile, bool masked) {
    wait_kv<kCfg.kv>(smem.k_full[k_ring.stage], k_ring.phase);
    const bool hides = smem.hides_keys(k_ring.stage);
    widened.hold(o);  // of the tile before, whose operands give their registers to these
    widened.scores(s, smem.k[k_ring.stage], own.q, q);
    wait_kv<kCfg.kv>(smem.v_full[v_ring.stage], v_ring.phase);
    typename WidenedGemms<kCfg>::Values values;
    widened.load(values, smem.v[v_ring.stage]);
    soften(unit, tile, masked, hides);
    smem.k_empty[k_ring.stage].arrive_if(thread == 0);  // sim:spare(one_tile)
    smem.v_empty[v_ring.stage].arrive_if(thread == 0);  // sim:spare(one_tile)
    k_ring.skip(kTurns), v_ring.skip(kTurns);
    widened.add(o, values, own.p, p);
  }
  // From scores to P in shared memory, and O by the new maxima; then all have read what was loaded.
  FA3_DEV void soften(const DecodeUnit& unit, i32 tile, bool masked, bool hides) {
    apply_score(unit, tile, masked);
    if constexpr (kCfg.cached())
      if (hides) hide_keys(unit, tile);
    float scale[kColumns];
    raise(scale);
    exponentials(scale);
    FA3_UNROLL
    for (int m = 0; m < kCfg.o_blocks(); ++m) {
      FA3_UNROLL
      for (int i = 0; i < kN / 2; ++i) o[m][i] *= scale[2 * (i / 4) + i % 2];
    }
    ptx::fence_proxy_async_shared();  // sim:spare(wait_kv)
    sync();
  }
  FA3_DEV void step_of_16_bits(const DecodeUnit& unit, i32 tile, bool masked) {
    wait_kv<kCfg.kv>(smem.k_full[k_ring.stage], k_ring.phase);
    const bool hides = smem.hides_keys(k_ring.stage);
    const K keys = k.after(k_ring.stage * static_cast<u32>(kCfg.k_tile().bytes()));
    FA3_UNROLL
    for (u32 b = 0; b < kCfg.key_blocks(); ++b)
      gemm_ss<kCfg.dtype, kCfg.head_dim_qk / DecodeConfig::kStep>(s[b], keys.from_row(kWgRows * b),
                                                                  q, kOverwrite);
    wait_all();  // also for P·V of the tile before
    release_k();
    soften(unit, tile, masked, hides);
    wait_kv<kCfg.kv>(smem.v_full[v_ring.stage], v_ring.phase);
    const V values = v.after(v_ring.stage * static_cast<u32>(kCfg.v_tile().bytes()));
    FA3_UNROLL
    for (u32 m = 0; m < kCfg.o_blocks(); ++m)
      gemm_ss<kCfg.dtype, kCfg.tile_kv / DecodeConfig::kStep>(o[m], values.from_row(kWgRows * m), p,
                                                              kAccumulate);
    v_pending = true;
  }
  // All GEMMs are complete.
  FA3_DEV void wait_all() {
    gemm_wait<0>(s[0]);
    FA3_UNROLL
    for (int b = 1; b < kCfg.key_blocks(); ++b) ptx::fence_regs(s[b]);
    FA3_UNROLL
    for (int m = 0; m < kCfg.o_blocks(); ++m) ptx::fence_regs(o[m]);
    if (v_pending) {
      smem.v_empty[v_ring.stage].arrive_if(thread == 0);  // sim:spare(one_tile)
      v_ring.advance();
      v_pending = false;
    }
  }
  FA3_DEV void release_k() {
    smem.k_empty[k_ring.stage].arrive_if(thread == 0);  // sim:spare(one_tile)
    k_ring.advance();
  }

  // Of the key in accumulator i of block b: 16 a warp, 8 apart in a thread.
  FA3_DEV i32 key_of(i32 tile, int b, int half) const {
    return kCfg.tile_kv * tile + kWgRows * b + static_cast<i32>(fragment_row(thread)) + 8 * half;
  }
  FA3_DEV void apply_score(const DecodeUnit& unit, i32 tile, bool masked) {
    if constexpr (kCfg.kv8) {
      FA3_UNROLL
      for (int b = 0; b < kCfg.key_blocks(); ++b) {
        FA3_UNROLL
        for (int i = 0; i < kN / 2; ++i) s[b][i] *= of_codes[2 * (i / 4) + i % 2];
      }
    }
    FA3_UNROLL
    for (int b = 0; b < kCfg.key_blocks(); ++b)
      ScoreFunction<kCfg.score>{{{args.score_factor, args.score_factor}}}.apply(s[b]);
    if (!kCfg.alibi && !masked) return;
    FA3_UNROLL
    for (int i = 0; i < kColumns; ++i) {
      const DecodeRow row = row_of(i);
      FA3_UNROLL
      for (int b = 0; b < kCfg.key_blocks(); ++b) {
        FA3_UNROLL
        for (int h = 0; h < 2; ++h) {
          const int r = 4 * (i / 2) + 2 * h + i % 2;
          const i32 key = key_of(tile, b, h);
          if constexpr (kCfg.alibi) {
            const float distance = static_cast<float>(row.position - key);
            s[b][r] = ptx::fma(row.slope, ptx::max(distance, -distance), s[b][r]);
          }
          if (masked && (key < row.lo || key >= row.hi)) s[b][r] = -kInf;
        }
      }
    }
    if constexpr (kCfg.tree)
      if (masked) hide_by_tree(unit, tile);
  }
  FA3_DEV void hide_by_tree(const DecodeUnit& unit, i32 tile) {
    const i32 first = unit.kv.used - unit.q.used;
    FA3_UNROLL
    for (int i = 0; i < kColumns; ++i) {
      const u64 bits = tree_bits(args, unit, row_of(i).query);
      FA3_UNROLL
      for (int b = 0; b < kCfg.key_blocks(); ++b) {
        FA3_UNROLL
        for (int h = 0; h < 2; ++h)
          if (!tree_shows(bits, key_of(tile, b, h) - first))
            s[b][4 * (i / 2) + 2 * h + i % 2] = -kInf;
      }
    }
  }
  // Keys in pages that do not exist, which no valid call has.
  FA3_DEV void hide_keys(const DecodeUnit& unit, i32 tile) {
    FA3_UNROLL
    for (int b = 0; b < kCfg.key_blocks(); ++b) {
      FA3_UNROLL
      for (int h = 0; h < 2; ++h) {
        const i32 key = key_of(tile, b, h);
        const KvCacheArgs& cache = args.shape.cache;
        const bool there =
            key < unit.kv.used && cache.has(cache.entry_of(unit.batch, unit.kv.begin + key));
        FA3_UNROLL
        for (int i = 0; i < kColumns; ++i)
          if (!there) s[b][4 * (i / 2) + 2 * h + i % 2] = -kInf;
      }
    }
  }
  // The running maxima with those of the tile; scale: what O and sums are then multiplied by.
  FA3_DEV void raise(float (&scale)[kColumns]) {
    FA3_UNROLL
    for (int i = 0; i < kColumns; ++i) {
      float most = -kInf;
      FA3_UNROLL
      for (int b = 0; b < kCfg.key_blocks(); ++b) {
        const int r = 4 * (i / 2) + i % 2;
        most = ptx::max(most, ptx::max(s[b][r], s[b][r + 2]));
      }
      scale[i] = most;
    }
    over_keys(scale, [](float a, float b) { return ptx::max(a, b); });
    give(scale);
    sync();  // the maxima of all warps are there, and no GEMM reads P
    FA3_UNROLL
    for (int i = 0; i < kColumns; i += 2) {
      float most[2] = {max[i], max[i + 1]};
      FA3_UNROLL
      for (int w = 0; w < DecodeConfig::kWarps; ++w) {
        const Two of_warp = taken(w, i);
        most[0] = ptx::max(most[0], of_warp[0]), most[1] = ptx::max(most[1], of_warp[1]);
      }
      FA3_UNROLL
      for (int e = 0; e < 2; ++e) {
        if constexpr (kByParts) {
          scale[i + e] = raise_one(max[i + e], most[e]);
        } else {
          scale[i + e] = ptx::ex2((max[i + e] - or_zero(most[e])) * args.scale_log2);
          max[i + e] = most[e];
        }
      }
    }
  }
  // A row's maximum as RowSoftmax raises it; what sum and O are multiplied by.
  FA3_DEV float raise_one(float& max, float grown) const {
    const float before = max;
    const bool grows = !((grown - before) * args.scale_log2 <= kMostLog2) ||
                       ExponentOffset::of(before, args.scale_log2).huge;
    if (!grows) return 1.f;
    max = grown;
    const ExponentOffset offset = ExponentOffset::of(max, args.scale_log2);
    return raised_scale(before, or_zero(max), offset.log2, offset.huge, args.scale_log2);
  }
  // P of a score under that maximum.
  FA3_DEV float exponential(float score, float most, const ExponentOffset& offset) const {
    if constexpr (kByParts)
      return ptx::ex2(ptx::fma(score - offset.of_score, args.scale_log2, -offset.log2));
    return ptx::ex2((score - most) * args.scale_log2);
  }
  // A number of each column over the warp's keys. All columns exchange before the next step, which
  // waits for the one before.
  template <class F>
  FA3_DEV static void over_keys(float (&x)[kColumns], const F& f) {
    FA3_UNROLL
    for (u32 m = 4; m < 32; m *= 2) {
      float other[kColumns];
      FA3_UNROLL
      for (int i = 0; i < kColumns; ++i) other[i] = ptx::shfl_xor(x[i], m);
      FA3_UNROLL
      for (int i = 0; i < kColumns; ++i) x[i] = f(x[i], other[i]);
    }
  }
  // A number of each column, of this warp's keys, for the others; those of warp w of columns i, i +
  // 1.
  using Two = ptx::Vec<float, 2>;
  FA3_DEV void give(const float (&x)[kColumns]) {
    if (lane >= 4) return;
    FA3_UNROLL
    for (int i = 0; i < kColumns; i += 2)
      ptx::st_shared(reinterpret_cast<Two*>(&own.number[warp][column_index(i)]),
                     Two{{x[i], x[i + 1]}});
  }
  FA3_DEV Two taken(int w, int i) const {
    return ptx::ld_shared(reinterpret_cast<const Two*>(&own.number[w][column_index(i)]));
  }
  FA3_DEV u32 column_index(int i) const {
    return static_cast<u32>(column(i)) + fragment_column(lane);
  }

  // P, into shared memory, and sums.
  FA3_DEV void exponentials(const float (&scale)[kColumns]) {
    FA3_UNROLL
    for (int i = 0; i < kColumns; ++i) {
      const float most = or_zero(max[i]);
      const ExponentOffset offset = ExponentOffset::of(max[i], args.scale_log2);
      sum[i] *= scale[i];
      FA3_UNROLL
      for (int b = 0; b < kCfg.key_blocks(); ++b) {
        FA3_UNROLL
        for (int h = 0; h < 2; ++h) {
          float& x = s[b][4 * (i / 2) + 2 * h + i % 2];
          x = exponential(x, most, offset);
          sum[i] += x;
        }
      }
    }
    // Matrices of 8 keys by 8 rows, turned: this warp's 16 keys of each block.
    FA3_UNROLL
    for (int b = 0; b < kCfg.key_blocks(); ++b) {
      FA3_UNROLL
      for (int j = 0; j < kN / 8; ++j) {
        const ptx::Vec<u32, 2> two{
            {pack16<kCfg.operand()>(kPScale * s[b][4 * j], kPScale * s[b][4 * j + 1]),
             pack16<kCfg.operand()>(kPScale * s[b][4 * j + 2], kPScale * s[b][4 * j + 3])}};
        const u32 keys8 = static_cast<u32>(kWgRows / 8 * b) + 2 * warp + lane / 8 % 2;
        ptx::stmatrix_x2_trans(own.p + keys8 * PTile<kN>::kKeys8 +
                                   static_cast<u32>(j) * PTile<kN>::kMatrix + lane % 8 * 16,
                               two);
      }
    }
  }

  // For each row its greatest score, and the sums of all warps.
  FA3_DEV void finish() {
    if constexpr (kCfg.kv8)
      widened.hold(o);
    else
      wait_all();
    over_keys(sum, [](float a, float b) { return a + b; });
    give(sum);
    if (warp == 0 && lane < 4) {
      FA3_UNROLL
      for (int i = 0; i < kColumns; ++i) ptx::st_shared(&own.most[column_index(i)], max[i]);
    }
    sync();  // no GEMM reads Q and P, in whose place O comes
  }
  FA3_DEV void spread_o() {
    constexpr int kApart = kCfg.kv8 ? 1 : 8;  // the thread's two columns of O
    const u32 first = kCfg.kv8 ? widened_o_column(thread) : fragment_row(thread);
    float* const to = own.o() + fragment_column(lane) * kCfg.o_width() + first;
    FA3_UNROLL
    for (int m = 0; m < kCfg.o_blocks(); ++m) {
      FA3_UNROLL
      for (int i = 0; i < kColumns; ++i) {
        FA3_UNROLL
        for (int h = 0; h < 2; ++h)
          ptx::st_shared(to + column(i) * kCfg.o_width() + kWgRows * m + kApart * h,
                         o[m][4 * (i / 2) + 2 * h + i % 2]);
      }
    }
  }
};

}  // namespace fa3::sm90
