// SPDX-License-Identifier: BSD-3-Clause
// v_image.cuh — 8-bit V transposed tile by tile into global memory, as the forward kernel's stages
// hold it, so that it is loaded there by linear copies.
// CONTRACT  every tile that has keys that count is written, all of it: keys beyond the sequence as
//           zeros. cu_seqlens and seqused may hold anything.
// GRID      x: tiles of all sequences, in the order of VImage · y: KV heads. One tile a CTA, of
//           128 threads.
// BARRIERS  full: count 1, the raw tile's bytes
#pragma once

#include "device/ptx/bulk.h"
#include "device/ptx/fence.h"
#include "device/ptx/grid.h"
#include "device/ptx/thread.h"
#include "device/sm90/common/begin_cta.h"
#include "device/sm90/common/tile_load.h"
#include "device/sm90/fwd/scheduler.h"
#include "device/sm90/fwd/transposer.h"
#include "device/sm90/fwd/v_image_args.h"
#include "device/sm90/fwd/v_image_config.h"

namespace fa3::sm90 {

template <VImageConfig kCfg>
struct VImageSmem {
  alignas(1024) u8 raw[kCfg.raw_tile().bytes()];
  alignas(1024) u8 turned[kCfg.tile.bytes()];
  Barrier full;
  FA3_NAMED(raw, turned, full)

  FA3_DEV void init_barriers() { full.init(1); }
};

// The sequence that a tile belongs to: the last that begins at or before it.
template <VImageConfig kCfg>
FA3_DEV i32 sequence_of(const VImageArgs& args, i32 tile) {
  if (!args.image.varlen) return tile / args.tiles;
  i32 found = 0, beyond = args.batch;
  while (beyond - found > 1) {
    const i32 b = (found + beyond) / 2;
    const i32 begin = rows_of<true>(args.kv_axis, args.batch, b).begin;
    (begin / kCfg.tile.keys + b <= tile ? found : beyond) = b;
  }
  return found;
}

template <VImageConfig kCfg>
FA3_KERNEL(VImageConfig::kThreads, 4)
void v_image(FA3_GRID_CONSTANT const VImageArgs args) {
  auto& smem = begin_cta<VImageSmem<kCfg>, kCfg.smem_bytes()>();
  const bool leader = ptx::thread_index() == 0;
  const i32 index = static_cast<i32>(ptx::block_index_x());
  const i32 head = static_cast<i32>(ptx::block_index_y());
  const i32 b = sequence_of<kCfg>(args, index);
  const SequenceRows rows = rows_of<kCfg.ragged>(args.kv_axis, args.batch, b);
  const i64 first = args.image.first_tile(b, 0, rows.begin, kCfg.tile.keys);
  const i32 tile = index - static_cast<i32>(args.image.varlen ? first : i64{b} * args.tiles);
  if (tile < 0 || i64{tile} * kCfg.tile.keys >= rows.used) return;
  if (leader) {
    const HeadRows from{rows.begin, rows.used, head, b};
    load_tile<kCfg.ragged, kCfg.raw_tile()>(smem.raw, args.v, smem.full, from,
                                            kCfg.tile.keys * tile, ptx::L2Hint::kEvictFirst);
  }
  ptx::warp_sync();  // converged for ldmatrix  sim:spare(converge)
  smem.full.wait(0);
  const TileTurner<kCfg.tile, blocks_in_flight(kCfg.tile.columns, 4)> turner;
  turner.turn(smem.raw, smem.turned, ptx::warp_index(), VImageConfig::kThreads / 32);
  ptx::fence_proxy_async_shared();
  ptx::cta_sync();
  if (leader) {
    const i64 to = args.image.first_tile(b, head, rows.begin, kCfg.tile.keys) + tile;
    ptx::bulk_store(args.image.data + to * kCfg.tile.bytes(), ptx::smem_address(smem.turned),
                    kCfg.tile.bytes());
    ptx::bulk_commit();
    ptx::bulk_wait<0>();
  }
}

}  // namespace fa3::sm90
