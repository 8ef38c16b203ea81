// SPDX-License-Identifier: BSD-3-Clause
// epilogue.h — how a Q tile leaves a consumer: O / sum as 16 bits through shared memory and TMA, or
// in FP32 from registers, as LSE. Rows that see no key get O = 0, LSE = −∞.
#pragma once

#include "device/hopper/operand.h"
#include "device/hopper/transpose8.h"
#include "device/ptx/bulk.h"
#include "device/ptx/fence.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/sm90/common/row_store.h"
#include "device/sm90/common/sink.h"
#include "device/sm90/common/tile_store.h"
#include "device/sm90/fwd/consumer.h"
#include "device/sm90/fwd/scales.h"
#include "device/warp/fragment.h"

namespace fa3::sm90 {

// Of the thread's two rows: their sinks in the units of the sums, −∞ where there is none, what O is
// multiplied by, and the part of a sum that is of keys.
struct RowEnds {
  float sink[2], inverse[2], keys[2];
};

// Adds the head's sink to the sums of rows that count.
template <class Consumer>
FA3_DEV RowEnds add_sink(Consumer& c, const FwdWork& work, float of_head) {
  RowEnds rows;
  FA3_UNROLL
  for (int h = 0; h < 2; ++h) {
    const float sum = c.tile.softmax.sum[h];
    rows.sink[h] = -kInf, rows.inverse[h] = ptx::rcp(sum), rows.keys[h] = 1.f;
    const i32 row = c.row_of(work) + 8 * h;
    if (of_head == -kInf || row >= work.q_used) continue;
    float shift = 0.f;
    c.scores.add_offset(shift, c, work, row);
    rows.sink[h] = of_head - shift;
    const PerRow scale_log2 = c.scores.scale_log2(c.args);
    const SumWithSink all(sum, rows.sink[h],
                          c.tile.softmax.above_offset(h, rows.sink[h], scale_log2));
    c.tile.softmax.sum[h] = all.sum;
    rows.inverse[h] = all.inverse, rows.keys[h] = sum * all.inverse;
  }
  return rows;
}

template <class Consumer>
FA3_DEV void store_lse(const Consumer& c, const FwdWork& work, const RowEnds& rows,
                       const bool (&nothing)[2]) {
  const FwdArgs& args = c.args;
  if (ptx::thread_index() % 4 != 0 || args.lse == nullptr) return;
  const i32 row = c.row_of(work);
  const i64 first = args.q_axis.cu_seqlens != nullptr ? work.q_begin : 0;
  float* const to = args.lse + work.batch * args.lse_batch + work.head * args.lse_head +
                    (first + row) * args.lse_row;
  store_lse(to, args.lse_row, RowPair{row, work.q_rows}, [&](int h) {
    const float of_sum = nothing[h] ? -kInf : c.tile.softmax.lse(h, c.scores.scale_log2(args));
    float lse = lse_with_sink(nothing[h], of_sum, rows.sink[h]);
    if (!nothing[h] || rows.sink[h] != -kInf) c.scores.add_offset(lse, c, work, row + 8 * h);
    return lse;
  });
}

// Raises max_logit of the head by the greatest score of the warp's rows.
template <class Consumer>
FA3_DEV void raise_max_logit(const Consumer& c, const FwdWork& work, const bool (&nothing)[2],
                             Where where = Where::here()) {
  float most = -kInf;
  FA3_UNROLL
  for (int h = 0; h < 2; ++h)
    if (!nothing[h])
      most = ptx::max(most, c.tile.softmax.greatest_of(h, c.scores.scale_log2(c.args)));
  FA3_UNROLL
  for (u32 m = 1; m < 32; m *= 2) most = ptx::max(most, ptx::shfl_xor(most, m, 32, ~0u, where));
  if (ptx::lane_index() == 0) c.args.max_logit.raise(work.head, most, where);
}

// O / sum · V's scale + V's offset, which each lane loads for every 32nd column and from which the
// warp takes it by shuffles: loaded where they are added, ptxas has all of them in flight, for
// which there are no registers.
template <class Consumer>
FA3_DEV void normalise_with_offset(Consumer& c, const FwdWork& work, const RowEnds& rows,
                                   const bool (&nothing)[2], Where where = Where::here()) {
  const FwdArgs& args = c.args;
  constexpr int kColumns = Consumer::kConfig.tile.head_dim_v;
  const float* const offset = args.v_offset + work.batch * args.v_offset_batch +
                              work.head / args.group_size * args.v_offset_head;
  const u32 lane = ptx::lane_index();
  float mine[kColumns / 32];
  FA3_UNROLL
  for (int g = 0; g < kColumns / 32; ++g) {
    const i32 column = 32 * g + static_cast<i32>(lane);  // the tensor may have fewer
    mine[g] = column < args.head_dim_v ? ptx::ld_global(offset + column) : 0.f;
  }
  FA3_UNROLL
  for (int column = 0; column < kColumns; column += 8) {
    FA3_UNROLL
    for (int n = 0; n < 2; ++n) {
      const u32 from = static_cast<u32>(column % 32 + n) + fragment_column(lane);
      const float of_v = ptx::shfl_idx(mine[column / 32], from, 32, ~0u, where);
      FA3_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int i = column / 2 + 2 * h + n;
        c.pv.o[i] = nothing[h] ? 0.f : ptx::fma(c.pv.o[i], rows.inverse[h], of_v * rows.keys[h]);
      }
    }
  }
}

template <class Consumer>
FA3_DEV void normalise_o(Consumer& c, const FwdWork& work, RowEnds& rows,
                         const bool (&nothing)[2]) {
  constexpr FwdConfig kCfg = Consumer::kConfig;
  if constexpr (kCfg.types.v8()) {
    untranspose8(c.pv.o);
    if (!work.range.empty()) {
      const float scale = kCfg.scores.block_scales() ? 1.f : scale_at(c.args.v_scale, work, 0, 0);
      FA3_UNROLL
      for (int h = 0; h < 2; ++h) rows.inverse[h] *= scale;
      if (c.args.v_offset != nullptr) return normalise_with_offset(c, work, rows, nothing);
    }
  }
  normalise_rows(c.pv.o, rows.inverse, nothing);
}

template <class Consumer>
FA3_DEV void store_o_f32(const Consumer& c, const FwdWork& work) {
  const FwdArgs& args = c.args;
  const i32 row = c.row_of(work);
  const i64 first = args.q_axis.cu_seqlens != nullptr ? work.q_begin : 0;
  const u32 mine = fragment_column(ptx::thread_index() % kWgThreads);
  float* const to = args.o_f32 + work.batch * args.o_batch + work.head * args.o_head +
                    (first + row) * args.o_row + mine;
  store_o_f32(to, args.o_row, RowPair{row, work.q_rows}, c.pv.o, args.head_dim_v);
}

template <FwdConfig kCfg, class Order, class F>
FA3_DEV void Consumer<kCfg, Order, F>::store_tile() {
  const NamedBarrier all{kTileBar + wg, kWgThreads};
  u8* const buffer = kCfg.output.f32    ? nullptr  // leaves from registers
                     : kCfg.output.in_q ? smem.q[tile.q_slot]
                                        : smem.o[wg];
  if constexpr (!kCfg.output.in_q && !kCfg.output.f32) {
    if (leader) ptx::bulk_wait_read<0>();  // the previous O has drained  sim:spare(one_tile)
    all.sync();                            // publish that to the warpgroup  sim:spare(one_tile)
  }
  const FwdWork work = smem.work[tile.work_slot].read();
  const float sink = ptx::ld_shared(&smem.work[tile.work_slot].sink);
  release_work(tile.work_slot);
  const BandMask keys = band_of(work);
  bool nothing[2] = {keys.sees_nothing(0), keys.sees_nothing(1)};
  mask.find_unseen(nothing);
  missing.find_unseen(nothing);
  RowEnds rows = add_sink(*this, work, sink);
  normalise_o(*this, work, rows, nothing);
  if constexpr (kCfg.output.f32) {
    store_o_f32(*this, work);
  } else {
    constexpr u32 kColumns = kCfg.o_part_panels() * kCfg.o_tile().panel_columns();
    FA3_UNROLL
    for (i32 part = 0; part < kCfg.output.parts; ++part) {
      if (part > 0) {
        if (leader) ptx::bulk_wait_read<0>();  // the previous part has drained
        all.sync();
      }
      const u32 begin = kColumns * static_cast<u32>(part);
      store_operand16<kCfg.types.o, kCfg.o_tile().swizzle()>(buffer, pv.o, kWgRows, begin,
                                                             begin + kColumns);
      ptx::fence_proxy_async_shared();
      all.sync();
      if (leader)
        store_panels<kCfg.load.ragged, kCfg.o_tile(), kCfg.o_part_panels()>(
            args.o, buffer, {work.q_begin, work.q_rows, work.head, work.batch},
            kCfg.tile.q() * work.tile + static_cast<i32>(kWgRows * wg),
            part * kCfg.o_part_panels());
    }
    if constexpr (kCfg.output.in_q) {
      if (leader) {
        ptx::bulk_wait_read<0>();
        smem.q_empty[tile.q_slot].arrive();
      }
    }
  }
  store_lse(*this, work, rows, nothing);
  if constexpr (kCfg.output.max_logit) raise_max_logit(*this, work, nothing);
  // Reconverge: otherwise ptxas mistakes the warp for divergent in the loops that follow and
  // rebuilds descriptors in every step (R2UR).
  ptx::warp_sync();  // sim:spare(reconverge)
}

}  // namespace fa3::sm90
