// SPDX-License-Identifier: BSD-3-Clause
// parked.h — long sums of P·V: the tensor cores keep 13 bits of an E4M3 sum, so every few KV tiles
// a consumer adds its O to FP32 sums in the workspace and begins anew. Each thread has places of
// its own there, so that additions are in order and nobody else is waited for.
#pragma once

#include "device/ptx/grid.h"
#include "device/ptx/memory.h"
#include "device/ptx/registers.h"
#include "device/ptx/thread.h"
#include "device/ptx/vec.h"
#include "device/sm90/fwd/args.h"
#include "device/sm90/fwd/config.h"
#include "device/types.h"
#include "device/warp/softmax.h"

namespace fa3::sm90 {

template <FwdConfig kCfg>
struct ParkedO {
  static constexpr i32 kTiles = kCfg.park_tiles;
  static constexpr int kGroup = 4;  // accumulators of an access: two of each row
  static constexpr int kGroups = kCfg.head_dim_v / 2 / kGroup;
  using Group = ptx::Vec<float, kGroup>;
  using OAcc = ptx::Acc<kCfg.head_dim_v>;

  // Of this thread; the next groups are kWgThreads further on each.
  FA3_DEV static Group* place(const FwdArgs& args, u32 wg) {
    const u32 consumer = ptx::block_index_x() * kCfg.consumer_wgs + wg;
    return reinterpret_cast<Group*>(args.parked) + consumer * (kGroups * kWgThreads) +
           ptx::thread_index() % kWgThreads;
  }

  // O is parked behind the step of each tile that is a multiple of kTiles. Those before are
  // last − 1 down to kv_tile + 1, the first, `last`, has no step.
  FA3_DEV static bool has(i32 last, i32 kv_tile) { return ((last - 1) & -kTiles) > kv_tile; }

  // The end of a step: O in units of the new maximum, as what is parked; then it is time to park O.
  FA3_DEV static void step(const FwdArgs& args, u32 wg, i32 last, i32 kv_tile, OAcc& o,
                           const RowScale& rescale) {
    if (rescale.needed && has(last, kv_tile)) {
      Group* const at = place(args, wg);
      FA3_NO_UNROLL
      for (int g = 0; g < kGroups; ++g) {
        Group x = ptx::ld_relaxed_gpu(at + g * kWgThreads);
        FA3_UNROLL
        for (int i = 0; i < kGroup; ++i) x[i] *= rescale.row[i / 2];
        ptx::st_relaxed_gpu(at + g * kWgThreads, x);
      }
    }
    if (kv_tile % kTiles != 0) return;
    Group* const at = place(args, wg);
    if (has(last, kv_tile)) {
      FA3_UNROLL
      for (int g = 0; g < kGroups; ++g)
        ptx::red_add_v4_f32(reinterpret_cast<float*>(at + g * kWgThreads), group(o, g));
    } else {
      FA3_UNROLL
      for (int g = 0; g < kGroups; ++g) ptx::st_relaxed_gpu(at + g * kWgThreads, group(o, g));
    }
    o.zero();
  }

  // After the last step, that of tile `first`: O becomes the whole sum.
  FA3_DEV static void finish(const FwdArgs& args, u32 wg, i32 last, i32 first, OAcc& o) {
    if (!has(last, first - 1)) return;
    const Group* const at = place(args, wg);
    FA3_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      const Group x = ptx::ld_relaxed_gpu(at + g * kWgThreads);
      FA3_UNROLL
      for (int i = 0; i < kGroup; ++i) o[kGroup * g + i] += x[i];
    }
  }

 private:
  FA3_DEV static Group group(const OAcc& o, int g) {
    Group x;
    FA3_UNROLL
    for (int i = 0; i < kGroup; ++i) x[i] = o[kGroup * g + i];
    return x;
  }
};

}  // namespace fa3::sm90
