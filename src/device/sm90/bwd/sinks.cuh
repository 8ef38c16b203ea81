// SPDX-License-Identifier: BSD-3-Clause
// sinks.cuh — dsinks: of a head −Σ exp(sink − LSE)·δ over the rows of all sequences, from LSE and
// from δ as bwd_delta has left it.
// CONTRACT  bwd_delta has run, unless there is no row. The order of additions depends on lengths
//           alone. cu_seqlens and seqused may hold anything.
// GRID      x: query heads, each a cluster
#pragma once

#include "device/attn/conventions.h"
#include "device/hopper/column_term.h"
#include "device/hopper/operand.h"
#include "device/ptx/barrier.h"
#include "device/ptx/grid.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/smem.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/bwd/args.h"

namespace fa3::sm90 {

struct BwdSinksSmem {
  float sums[kBwdRowThreads / 32];  // of the CTA's warps
  float all;                        // of them all
  FA3_NAMED(sums, all)
};

// A warp's rows of one head: pieces of 128 rows, of all sequences, which the cluster's warps take
// in turn.
template <bool kRagged>
struct SinkRows {
  static constexpr i32 kWarps = kBwdSinksCluster * kBwdRowThreads / 32;  // of the cluster
  static constexpr i32 kRows = 4, kPiece = 32 * kRows;                   // of a lane in a piece

  const BwdSinksArgs& args;
  i32 head;
  float sink;
  i32 lane = static_cast<i32>(ptx::lane_index());
  i32 warp = static_cast<i32>(ptx::cluster_rank() * (kBwdRowThreads / 32) + ptx::warp_index());

  FA3_DEV float sum() const {
    float all = 0.f;
    i32 before = 0;  // pieces of the sequences before
    FA3_NO_UNROLL
    for (i32 first = 0; first < args.batch; first += 32) {
      // The lengths of 32 sequences at once.
      SequenceRows mine;
      if (first + lane < args.batch) mine = rows_of<kRagged>(args.q_axis, args.batch, first + lane);
      FA3_NO_UNROLL
      for (i32 i = 0; i < 32 && first + i < args.batch; ++i) {
        const auto of_lane = [i](i32 x) {
          return static_cast<i32>(ptx::shfl_idx(static_cast<u32>(x), static_cast<u32>(i)));
        };
        const SequenceRows rows{of_lane(mine.begin), of_lane(mine.rows), of_lane(mine.used)};
        const auto pieces = static_cast<i32>(div_up(rows.used, kPiece));
        FA3_NO_UNROLL
        for (i32 piece = (warp + kWarps - before % kWarps) % kWarps; piece < pieces;
             piece += kWarps)
          all += sum_of_piece(first + i, rows, piece);
        before += pieces;
      }
    }
    return all;
  }

 private:
  FA3_DEV float sum_of_piece(i32 b, const SequenceRows& rows, i32 piece) const {
    const i64 tile = args.tiles.first(b, head, rows.begin, args.tile_q);
    const float* const lse = args.lse + b * args.lse_batch + head * args.lse_head +
                             i64{first_row(args.q_axis, rows)} * args.lse_row;
    float all = 0.f, weight[kRows];
    ColumnTermVec minus_delta[kRows];
    FA3_UNROLL
    for (i32 i = 0; i < kRows; ++i) {
      const i32 row = kPiece * piece + 32 * i + lane;
      weight[i] = -kInf, minus_delta[i] = ColumnTermVec{};
      if (row >= rows.used) continue;
      weight[i] = ptx::ld_global(lse + row * args.lse_row);
      minus_delta[i] = ptx::ld_global(
          reinterpret_cast<const ColumnTermVec*>(
              args.stats + (tile + row / args.tile_q) * args.row_floats + args.delta_at) +
          row % args.tile_q);
    }
    FA3_UNROLL
    for (i32 i = 0; i < kRows; ++i) {
      const float of_sink = ptx::ex2((sink - weight[i]) * kLog2e);
      if (weight[i] != -kInf) all = ptx::fma(of_sink, of_column_term(minus_delta[i]), all);
    }
    return all;
  }
};

FA3_DEV void store_sink_gradient(const BwdSinksArgs& args, i32 head, float sum) {
  if (args.type == FloatType::kF32) {
    ptx::st_global(static_cast<float*>(args.dsinks) + head, sum);
  } else {
    const u32 two = args.type == FloatType::kF16 ? pack16<MmaType::kF16>(sum, 0.f)
                                                 : pack16<MmaType::kBf16>(sum, 0.f);
    ptx::st_global(static_cast<u16*>(args.dsinks) + head, static_cast<u16>(two));
  }
}

template <bool kRagged>
FA3_KERNEL(kBwdRowThreads)
void bwd_sinks(FA3_GRID_CONSTANT const BwdSinksArgs args) {
  auto& smem = ptx::smem_as<BwdSinksSmem>();
  static_assert(sizeof smem == kBwdSinksSmemBytes, "the launch has another size");
  constexpr i32 kOfCta = kBwdRowThreads / 32;  // warps
  ptx::pdl_launch();
  ptx::pdl_wait();
  const auto head = static_cast<i32>(ptx::block_index_x() / kBwdSinksCluster);
  const SinkRows<kRagged> rows{args, head, args.sinks.of_head(head)};
  float sum = rows.sum();
  FA3_UNROLL
  for (u32 m = 1; m < 32; m *= 2) sum += ptx::shfl_xor(sum, m);
  if (rows.lane == 0) ptx::st_shared(&smem.sums[rows.warp % kOfCta], sum);
  ptx::cta_sync();
  const bool first = ptx::thread_index() == 0;
  if (first) {
    sum = 0.f;
    FA3_UNROLL
    for (u32 w = 0; w < kOfCta; ++w) sum += ptx::ld_shared(&smem.sums[w]);
    ptx::st_shared(&smem.all, sum);
  }
  ptx::cluster_sync();  // the sums of all CTAs are there
  if (first && ptx::cluster_rank() == 0) {
    sum = 0.f;
    FA3_UNROLL
    for (u32 cta = 0; cta < kBwdSinksCluster; ++cta)
      sum += ptx::ld_shared_cluster<float>(ptx::map_to_rank(ptx::smem_address(&smem.all), cta));
    store_sink_gradient(args, head, sum);
  }
  ptx::cluster_sync();  // and have been read
}

}  // namespace fa3::sm90
