// SPDX-License-Identifier: BSD-3-Clause
// mask_image.cuh — before the backward with an attn_mask that is added: its elements in the order
// in which consumers hold scores (warp/mask_image.h), so that each thread reads those of 8 queries
// at once, whatever the strides are; and which blocks show a key.
// CONTRACT  reads no element beyond the extents; −∞ stands for those.
// GRID      x: blocks of 64 queries and 64 keys of heads of batch entries, keys fastest
#pragma once

#include "device/hopper/tile_layout.h"
#include "device/ptx/grid.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/mask/args.h"
#include "device/sm90/mask/config.h"
#include "device/warp/mask_image.h"

namespace fa3::sm90 {

template <MaskImageConfig kCfg>
FA3_KERNEL(MaskImageConfig::kThreads)
void mask_image(FA3_GRID_CONSTANT const MaskImageArgs args) {
  using Element = MaskElement<kCfg.type, kCfg.bf16>;
  using Value = typename Element::Type;
  using Four = ptx::Vec<Value, 4>;
  ptx::pdl_launch();
  ptx::pdl_wait();
  const i64 block = ptx::block_index_x();
  i64 at = block;
  const i32 kv_block = static_cast<i32>(at % args.kv_blocks);
  at /= args.kv_blocks;
  const i32 q_block = static_cast<i32>(at % args.q_blocks);
  at /= args.q_blocks;
  const i32 head = static_cast<i32>(at % args.heads), batch = static_cast<i32>(at / args.heads);
  const MaskTensorArgs& mask = args.mask;
  const Value* const values =
      static_cast<const Value*>(mask.values) + batch * mask.batch + head * mask.head;
  Four* const to = static_cast<Four*>(args.image) + block * kMaskImageFours;
  bool shows = false;
  FA3_UNROLL
  for (u32 i = ptx::thread_index(); i < kMaskImageFours; i += MaskImageConfig::kThreads) {
    const u32 thread = i % kWgThreads;
    const i32 row =
        kMaskImageRows * q_block + static_cast<i32>(i / kWgThreads * 8 + fragment_column(thread));
    const i32 key = kMaskImageRows * kv_block + static_cast<i32>(fragment_row(thread));
    Four four;
    FA3_UNROLL
    for (int e = 0; e < 4; ++e) {
      const i32 r = row + e % 2, k = key + e / 2 * 8;
      const bool exists = r < args.rows && k < args.keys;
      const Value value = ptx::ld_global_nc_if(values + r * mask.row + i64{k} * mask.step, exists);
      four[e] = exists ? value : Element::kHidden;
      shows = shows || (exists && !(Element::value(value) == -kInf));
    }
    ptx::st_global(to + i, four);
  }
  static_assert(MaskImageConfig::kThreads / 32 == sizeof(MaskImageShown), "a byte a warp");
  shows = ptx::any(shows);
  u8* const of_warp = reinterpret_cast<u8*>(args.shown + block) + ptx::warp_index();
  if (ptx::lane_index() == 0) ptx::st_global(of_warp, static_cast<u8>(shows ? 1 : 0));
}

}  // namespace fa3::sm90
