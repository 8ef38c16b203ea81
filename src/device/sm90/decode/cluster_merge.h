// SPDX-License-Identifier: BSD-3-Clause
// cluster_merge.h — merges the parts that the CTAs of a cluster have of a unit's rows, each a share
// of the columns of all rows. It reads what consumers have left in shared memory: O, not yet
// normalised, the factor that does it, and LSE of the part.
#pragma once

#include "device/attn/conventions.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/smem.h"
#include "device/ptx/thread.h"
#include "device/sm90/decode/smem.h"
#include "device/sm90/decode/store.h"
#include "device/warp/merge.h"

namespace fa3::sm90 {

// Of one consumer's rows, by its threads.
template <DecodeConfig kCfg>
struct ClusterMerge {
  static constexpr u32 kUnroll = 8;  // parts read side by side
  static constexpr u32 kFours = kCfg.head_dim_v / 4;

  DecodeConsumerSmem<kCfg>& own;
  const DecodeArgs& args;
  const DecodeUnit& unit;

  FA3_DEV void run(u32 thread) const {
    constexpr u32 kThreads = kCfg.in_turns ? kWgThreads * kCfg.consumers : kWgThreads;
    constexpr u32 kAll = kCfg.consumer_rows() * kFours;
    const u32 share = static_cast<u32>(args.shape.cluster.quotient(kAll - 1)) + 1;
    const u32 begin = ptx::cluster_rank() * share, end = min(begin + share, kAll);
    FA3_NO_UNROLL
    for (u32 at = begin + thread; at < end; at += kThreads) merge(at / kFours, at % kFours * 4);
  }

 private:
  // The same place in the shared memory of another CTA.
  template <class T>
  FA3_DEV static T of_cta(u32 rank, const void* place) {
    return ptx::ld_shared_cluster<T>(ptx::map_to_rank(ptx::smem_address(place), rank));
  }
  // Four columns of a row.
  FA3_DEV void merge(u32 r, u32 column) const {
    const DecodeRow row = own.row[r].read();
    if (row.query < 0 || static_cast<i32>(column) >= args.out.head_dim_v) return;
    Four o[1] = {};
    float most = -kInf, sum = 0.f;
    const u32 ctas = args.shape.cluster.divisor;
    FA3_NO_UNROLL
    for (u32 begin = 0; begin < ctas; begin += kUnroll) {
      Four x[kUnroll][1];
      float lse[kUnroll], factor[kUnroll];
      FA3_UNROLL
      for (u32 u = 0; u < kUnroll; ++u) {
        const u32 rank = begin + u;
        factor[u] = 0.f, lse[u] = -kInf, x[u][0] = Four{{0, 0, 0, 0}};
        if (rank >= ctas) continue;
        factor[u] = of_cta<float>(rank, &own.factor()[r]);
        lse[u] = of_cta<float>(rank, &own.lse()[r]);
        x[u][0] = of_cta<Four>(rank, own.o() + r * kCfg.o_width() + column);
      }
      FA3_UNROLL
      for (u32 u = 0; u < kUnroll; ++u) {
        const bool none = factor[u] == 0.f;  // whatever its columns are
        FA3_UNROLL
        for (int n = 0; n < 4; ++n) x[u][0][n] = none ? 0.f : x[u][0][n] * factor[u];
      }
      merge_parts(o, most, sum, lse, x);
    }
    const bool nothing = row.lo >= row.hi || (kCfg.cached() && sum == 0.f);
    const PackedRow place{row.query, row.head};
    const float sink = sink_of(args.out, unit, place);
    const SumWithSink all(sum, sink, MergedSum{most}.log2_of(sink));
    FA3_UNROLL
    for (int n = 0; n < 4; ++n) o[0][n] = nothing ? 0.f : o[0][n] * all.inverse;
    const RowPlace to = place_of(args.out, args.shape, unit, place);
    store_four<kCfg.dtype, kCfg.o_f32>(args.out, to.o + column, o[0]);
    if (column > 0) return;
    const float lse = nothing ? -kInf : MergedSum{most}.lse(all.sum);
    store_lse(args.out, to, lse_with_sink(nothing, lse, sink));
  }
};

}  // namespace fa3::sm90
