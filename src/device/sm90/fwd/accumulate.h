// SPDX-License-Identifier: BSD-3-Clause
// accumulate.h — how P·V of one KV tile after another becomes O: added by the tensor cores, by them
// for a few tiles at a time, or in FP32, tile by tile. Each way is a struct that holds O, and P as
// an operand, with these functions; c is the consumer:
//   begin()                      O is 0
//   issue(c)                     P·V of the tile whose P is the operand
//   take(c, p)                   that P·V is complete, its stage of V free; p is the operand
//   rescale(by)                  O in units of a new maximum
//   join(c)                      the rows' maxima and sums are those of the whole sum
//   finish(c)                    the last P·V is complete, O the whole sum
//   tiles_down<kMasked>(c, kv_tile, first, f)   f for the KV tiles from kv_tile down to first
//   wait_k, wait_first, wait_ahead              when a step waits for K and V
#pragma once

#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/hopper/ring.h"
#include "device/ptx/registers.h"
#include "device/sm90/common/kv_runs.h"
#include "device/sm90/fwd/config.h"
#include "device/sm90/fwd/mask.h"
#include "device/sm90/fwd/parked.h"
#include "device/sm90/fwd/parts.h"
#include "device/types.h"
#include "device/warp/softmax.h"

namespace fa3::sm90 {

struct Nothing {};

// The tensor cores add P·V to O. Parked: what ParkedSum keeps between O and P.
template <FwdConfig kCfg, class Parked = Nothing>
struct DirectSum {
  using P = ptx::Acc<kCfg.tile.kv>;
  using Operand = ptx::AFrag[kCfg.tile.kv / kCfg.types.pv_step()];

  ptx::Acc<kCfg.tile.head_dim_v> o;
  Parked parked;
  Operand operand;  // P

  FA3_DEV void begin() { o.zero(); }
  template <class C>
  FA3_DEV void issue(const C& c) {
    gemm_rs<kCfg.types.v>(o, operand, c.v_tile(), kAccumulate);
  }
  template <class C>
  FA3_DEV void take(C& c, P& p) {
    wait(c);
    c.scores.scales.scale_p(p);
    round(operand, p);
  }
  FA3_DEV void rescale(const RowScale& by) { rescale_rows<kCfg.scores.softmax>(o, by); }
  template <class C>
  FA3_DEV static void join(C&) {}
  template <class C>
  FA3_DEV void finish(C& c) {
    wait(c);
  }

  // P becomes an operand. In 8 bits a tile's keys are then in another order, that of V transposed.
  FA3_DEV static void round(Operand& to, const P& p) {
    if constexpr (kCfg.types.v8()) {
      to_operand8_permuted<kCfg.types.v>(to, p);
    } else {
      to_operand16<kCfg.types.v>(to, p);
    }
  }

  template <bool kMasked, class C, class F>
  FA3_DEV static void tiles_down(C&, i32& kv_tile, i32 first, const F& f) {
    FA3_NO_UNROLL
    for (; kv_tile >= first; --kv_tile) f(kv_tile, Masked<kMasked>{});
  }

  // K of this tile, at the head of a step.
  template <class C>
  FA3_DEV static void wait_k(const C& c) {
    wait_kv<kCfg.load.kv>(c.smem.k_full[c.k.stage], c.k.phase);
  }
  // V of the first tile.
  template <class C>
  FA3_DEV static void wait_first(const C& c, i32) {
    wait_kv<kCfg.load.kv>(c.smem.v_full[c.v.stage], c.v.phase);
  }
  // V of this tile, which is needed one step from now. ptxas cannot move the wait for P·V past the
  // loop in here, so not above the exponentials, with which P·V overlaps.
  template <class C>
  FA3_DEV static void wait_ahead(const C& c, i32) {
    const Ring<kCfg.tile.stages> next = c.v.next();
    wait_kv<kCfg.load.kv>(c.smem.v_full[next.stage], next.phase);
    c.scores.hold(c.tile.softmax);
  }

 protected:
  template <class C>
  FA3_DEV void wait(C& c) {
    gemm_wait<0>(o);
    c.release_v();
  }
};

// Long sums of 8-bit V: every few tiles O goes to sums in shared memory. Loops of their own lie
// between, so that ptxas orders a step as without.
template <FwdConfig kCfg>
struct ParkedSum : DirectSum<kCfg, ParkedO<kCfg>> {
  using Direct = DirectSum<kCfg, ParkedO<kCfg>>;
  using Direct::parked;

  FA3_DEV void begin() {
    Direct::begin();
    parked.reset();
  }
  FA3_DEV void rescale(const RowScale& by) {
    Direct::rescale(by);
    if (by.needed) parked.rescale(by);
  }
  template <class C>
  FA3_DEV void finish(C& c) {
    Direct::finish(c);
    parked.finish(c.smem.side[c.wg], this->o);
  }
  template <bool kMasked, class C, class F>
  FA3_DEV void tiles_down(C& c, i32& kv_tile, i32 first, const F& f) {
    FA3_NO_UNROLL
    while (kv_tile >= first) {
      const i32 stop = max(kv_tile & -kCfg.accumulate.park_tiles, first);
      Direct::template tiles_down<kMasked>(c, kv_tile, stop, f);
      if (stop % kCfg.accumulate.park_tiles == 0 && stop > c.visit.own.first)
        parked.park(c.smem.side[c.wg], this->o);
    }
  }
};

// One part of the keys after the other, each from nothing on.
template <FwdConfig kCfg>
struct PartedSum : DirectSum<kCfg, PartedO<kCfg>> {
  using Direct = DirectSum<kCfg, PartedO<kCfg>>;
  using Direct::parked;

  FA3_DEV void begin() {
    Direct::begin();
    parked.reset();
  }
  template <class C>
  FA3_DEV void join(C& c) {
    parked.join(c);
  }
  template <class C>
  FA3_DEV void finish(C& c) {
    Direct::finish(c);
    parked.add(c, this->o);
  }
  // Behind the last tile of a part with one to follow.
  template <class C>
  FA3_DEV void end_part(C& c) {
    this->issue(c);
    c.tile.softmax.finish();
    join(c);
    finish(c);
    parked.keep(c, this->o);
    this->o.zero();
    c.tile.softmax.reset();
  }
};

// 8-bit V: P·V of a tile comes in parts of columns, each added to O in FP32, one after the other.
// K is waited for among the exponentials. Elsewhere that costs more than it gains
// (docs/tuning/fwd8_sm90.md).
template <FwdConfig kCfg>
struct FlushedSum : DirectSum<kCfg> {
  static constexpr int kColumns = kCfg.accumulate.flush_columns;
  using Direct = DirectSum<kCfg>;
  using P = typename Direct::P;
  using Part = ptx::Acc<kColumns>;
  Part part;

  template <class C>
  FA3_DEV void issue(const C& c) {
    issue_part(c, part, 0);
  }
  template <class C>
  FA3_DEV void take(C& c, P& p) {
    finish(c);
    c.scores.scales.scale_p(p);
    Direct::round(this->operand, p);
  }
  template <class C>
  FA3_DEV void finish(C& c) {
    FA3_UNROLL
    for (int column = 0; column < kCfg.tile.head_dim_v; column += kColumns) {
      if (column > 0) issue_part(c, part, column);
      gemm_wait<0>(part);
      add_part(c, part, column);
    }
    c.release_v();
  }

  template <class C>
  FA3_DEV static void wait_k(const C&) {}
  template <class C>
  FA3_DEV static void wait_first(const C& c, i32 kv_tile) {
    Direct::wait_first(c, kv_tile);
    if (kv_tile > c.visit.own.first) Direct::wait_k(c);
  }
  // And K of the tile below: both answers for one branch. There may be no K that comes: without
  // waiting for it.
  template <class C>
  FA3_DEV static void wait_ahead(const C& c, i32 kv_tile) {
    const Ring<kCfg.tile.stages> next = c.v.next();
    const bool k_due = kv_tile > c.visit.own.first;
    const bool has_k = c.smem.k_full[c.k.stage].test_wait(c.k.phase);
    const bool has_v = c.smem.v_full[next.stage].try_wait(next.phase);
    if (!static_cast<bool>(has_v & (has_k | !k_due))) {
      c.smem.v_full[next.stage].wait(next.phase);
      if (k_due) c.smem.k_full[c.k.stage].wait(c.k.phase);
    }
    c.tile.softmax.hold();
  }

 protected:
  // The columns from `column` on.
  template <class C>
  FA3_DEV void issue_part(const C& c, Part& to, int column) {
    gemm_rs<kCfg.types.v>(to, this->operand, c.v_tile().from_row(static_cast<u32>(column)),
                          kOverwrite);
  }
  template <class C>
  FA3_DEV void add_part(const C& c, const Part& from, int column) {
    FA3_UNROLL
    for (int i = 0; i < kColumns / 2; ++i) {
      float& sum = this->o[column / 2 + i];
      sum = c.scores.scales.add_pv(sum, from[i], i);
    }
  }
};

// Two parts at a time, one added while the other is multiplied. The second takes the registers of
// S, once P is an operand.
template <FwdConfig kCfg>
struct PairedSum : FlushedSum<kCfg> {
  using Flushed = FlushedSum<kCfg>;
  using Part = typename Flushed::Part;
  using Direct = typename Flushed::Direct;

  template <class C>
  FA3_DEV void take(C& c, const typename Direct::P& p) {
    typename Direct::Operand rounded;
    Direct::round(rounded, p);
    finish(c);
    FA3_UNROLL
    for (int i = 0; i < kCfg.tile.kv / kCfg.types.pv_step(); ++i) this->operand[i] = rounded[i];
  }
  template <class C>
  FA3_DEV void finish(C& c) {
    constexpr int kColumns = Flushed::kColumns;
    Part& part = this->part;
    Part other;
    FA3_UNROLL
    for (int column = 0; column < kCfg.tile.head_dim_v; column += 2 * kColumns) {
      this->issue_part(c, other, column + kColumns);
      gemm_wait<1>(part);
      this->add_part(c, part, column);
      const bool more = column + 2 * kColumns < kCfg.tile.head_dim_v;
      if (more) {
        this->issue_part(c, part, column + 2 * kColumns);
        gemm_wait<1>(other);
      } else {
        gemm_wait<0>(other);
      }
      this->add_part(c, other, column + kColumns);
    }
    c.release_v();
  }
};

template <FwdConfig kCfg, Accumulate kHow = kCfg.accumulates()>
struct SumOf {
  using Type = DirectSum<kCfg>;
};
template <FwdConfig kCfg>
struct SumOf<kCfg, Accumulate::kParked> {
  using Type = ParkedSum<kCfg>;
};
template <FwdConfig kCfg>
struct SumOf<kCfg, Accumulate::kParts> {
  using Type = PartedSum<kCfg>;
};
template <FwdConfig kCfg>
struct SumOf<kCfg, Accumulate::kFlushed> {
  using Type = FlushedSum<kCfg>;
};
template <FwdConfig kCfg>
struct SumOf<kCfg, Accumulate::kPaired> {
  using Type = PairedSum<kCfg>;
};

}  // namespace fa3::sm90
