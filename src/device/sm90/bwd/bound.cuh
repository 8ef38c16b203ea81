// SPDX-License-Identifier: BSD-3-Clause
// bound.cuh — first of the deterministic backward's kernels: what K and V contribute to the bounds
// of dQ's rows (fixed.h).
// CONTRACT  CTA x writes entry x of its head. cu_seqlens and seqused may hold anything.
// GRID      x: as many as divide the keys of a sequence · y: KV heads · z: sequences
#pragma once

#include "device/ptx/atomic.h"
#include "device/ptx/barrier.h"
#include "device/ptx/grid.h"
#include "device/ptx/memory.h"
#include "device/ptx/smem.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/bwd/args.h"
#include "device/sm90/bwd/fixed.h"
#include "device/sm90/bwd/row_share.h"
#include "device/sm90/bwd/work.h"

namespace fa3::sm90 {

template <BwdConfig kCfg>
struct BoundSmem {
  RowShare<kCfg.bound_rows(), kCfg.head_dim_qk> k, v;
  alignas(16) u32 most[4];  // bits of KeyBound's vk, v and k, and non_finite
  FA3_NAMED(k, v, most)
};

// Of a row's elements, over the lanes that have them: the sum of squares, and the largest, NaN
// above all.
struct RowSize {
  float squares = 0, most = 0;

  FA3_DEV void take(const float (&x)[8]) {
    FA3_UNROLL
    for (int i = 0; i < 8; ++i) {
      squares = ptx::fma(x[i], x[i], squares);
      most = ptx::max_nan(most, ptx::abs(x[i]));
    }
  }
  template <u32 kLanes>
  FA3_DEV void over_lanes() {
    FA3_UNROLL
    for (u32 m = 1; m < kLanes; m *= 2) {
      squares += ptx::shfl_xor(squares, m);
      most = ptx::max_nan(most, ptx::shfl_xor(most, m));
    }
  }
};

template <BwdConfig kCfg>
FA3_KERNEL(kBwdRowThreads)
void bwd_bound(FA3_GRID_CONSTANT const BwdBoundArgs args) {
  using Share = RowShare<kCfg.bound_rows(), kCfg.head_dim_qk>;
  static_assert(kCfg.head_dim_v == kCfg.head_dim_qk, "a row of K and of V in the same lanes");
  static_assert(sizeof(BoundSmem<kCfg>) == kCfg.bound_smem_bytes(), "the launch has another size");
  auto& smem = ptx::smem_as<BoundSmem<kCfg>>();
  ptx::pdl_launch();
  ptx::pdl_wait();
  const i32 thread = Share::thread();
  if (thread < 4) ptx::st_shared(&smem.most[thread], 0u);
  ptx::cta_sync();
  const auto x = static_cast<i32>(ptx::block_index_x()),
             head = static_cast<i32>(ptx::block_index_y()),
             b = static_cast<i32>(ptx::block_index_z());
  const SequenceRows rows = rows_of_warp<kCfg.ragged>(args.kv_axis, args.batch, b);
  KeyBound bound;
  // All lanes of a warp take as many steps.
  for (i32 first = kCfg.bound_rows() * x; first < rows.used;
       first += kCfg.bound_rows() * static_cast<i32>(ptx::grid_dim_x())) {
    const auto copy = [&](Share& to, const BwdTensor& t, i32 columns) {
      const i64 i = i64{first_row(args.kv_axis, rows)} + first;
      to.copy(t, b * t.batch + i * t.row + head * t.head, rows.used - first, columns);
    };
    copy(smem.k, args.k, args.head_dim_qk);
    copy(smem.v, args.v, args.head_dim_v);
    Share::wait();
    FA3_UNROLL
    for (i32 turn = 0; turn < Share::kTurns; ++turn) {
      const auto size_of = [&](const Share& of) {
        RowSize size;
        FA3_UNROLL
        for (i32 part = 0; part < Share::kParts; ++part) {
          float x[8];
          of.template read<kCfg.dtype>(turn, part, x);
          size.take(x);
        }
        size.over_lanes<Share::kLanes>();
        return size;
      };
      const RowSize k = size_of(smem.k), v = size_of(smem.v);
      bound.take(norm_of(v.squares, v.most), k.most, k.most < kInf && v.most < kInf);
    }
  }
  const u32 most[4] = {ptx::bits_as<u32>(bound.vk), ptx::bits_as<u32>(bound.v),
                       ptx::bits_as<u32>(bound.k), bound.non_finite};
  FA3_UNROLL
  for (int i = 0; i < 4; ++i) {
    const u32 of_warp = ptx::redux_max_u32(most[i]);
    if (ptx::lane_index() == 0) ptx::atom_shared_max_u32(&smem.most[i], of_warp);
  }
  ptx::cta_sync();
  if (thread != 0) return;
  const auto entry = (i64{b} * ptx::grid_dim_y() + head) * ptx::grid_dim_x() + x;
  ptx::st_global(args.bounds + entry,
                 ptx::ld_shared(reinterpret_cast<const ptx::Vec<u32, 4>*>(smem.most)));
}

// All threads of a warp: a head's, from its entries.
FA3_DEV KeyBound load_bound(const ptx::Vec<u32, 4>* entries, i32 count) {
  u32 most[4] = {};
  for (i32 i = static_cast<i32>(ptx::lane_index()); i < count; i += 32) {
    const ptx::Vec<u32, 4> entry = ptx::ld_global(entries + i);
    FA3_UNROLL
    for (int k = 0; k < 4; ++k) most[k] = max(most[k], entry[k]);
  }
  FA3_UNROLL
  for (int k = 0; k < 4; ++k) most[k] = ptx::redux_max_u32(most[k]);
  return {ptx::bits_as<float>(most[0]), ptx::bits_as<float>(most[1]), ptx::bits_as<float>(most[2]),
          most[3] != 0};
}

}  // namespace fa3::sm90
