// SPDX-License-Identifier: BSD-3-Clause
// dq_fixed.h — deterministic: a dQ writer's warp makes integers of what a consumer hands over,
// where it lies in shared memory. Consumers are busy enough (docs/tuning/bwd_sm90.md).
#pragma once

#include "device/hopper/fragment.h"
#include "device/ptx/fence.h"
#include "device/ptx/memory.h"
#include "device/ptx/reduce.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/bwd/args.h"
#include "device/sm90/bwd/fixed.h"
#include "device/sm90/bwd/smem.h"

namespace fa3::sm90 {

// A warp's: piece `piece` of a tile's sums, in smem.dq[w]. A lane takes the registers of four
// threads of the consumer, one thread after another (put_dq).
template <BwdConfig kCfg>
struct DqFixed {
  BwdSmem<kCfg>& smem;
  const BwdArgs& args;
  u32 w;

  using Four = ptx::Vec<float, 4>;
  static constexpr u32 kFours = static_cast<u32>(kCfg.dq_piece_columns()) / 8;  // of a thread

  // tile: among those of all heads and sequences; slot: of its scales. A warp_sync
  // behind it hands the piece to whoever copies it.
  FA3_DEV void run(i64 tile, u32 slot, u32 piece) const {
    FA3_NO_UNROLL
    for (u32 thread = ptx::lane_index(); thread < kWgThreads; thread += 32) {
      const u32 row = (kCfg.dq_by_rows() ? kWgRows * w : 0) + fragment_row(thread);
      const float* const at = &smem.scales[slot][stats_place(static_cast<i32>(row))];
      const ptx::Vec<float, 2> scales{{ptx::ld_shared(at), ptx::ld_shared(at + 2)}};
      auto* const fours = reinterpret_cast<Four*>(smem.dq[w]) + thread;
      if (ptx::any(scales[0] < 0 || scales[1] < 0))
        flag_non_finite(fours, args.dq_flag + tile * kCfg.dq_flags(), kFours * piece, thread);
      FA3_UNROLL
      for (u32 g = 0; g < kFours; ++g) {
        const Four x = ptx::ld_shared(fours + kWgThreads * g);
        ptx::Vec<u32, 4> words;
        FA3_UNROLL
        for (int i = 0; i < 4; ++i) words[i] = to_fixed(x[i], scales, i);
        ptx::st_shared(reinterpret_cast<ptx::Vec<u32, 4>*>(fours + kWgThreads * g), words);
      }
    }
    ptx::fence_proxy_async_shared();
  }

 private:
  // Elements that are not finite become bits beside the sums, to which they add 0. first: the
  // piece's first group.
  FA3_DEV static void flag_non_finite(Four* fours, u32* flags, u32 first, u32 thread) {
    FA3_NO_UNROLL
    for (u32 i = 0; i < 4 * kFours; ++i) {
      float* const at = reinterpret_cast<float*>(fours + kWgThreads * (i / 4)) + i % 4;
      const float x = ptx::ld_shared(at);
      if (x - x == 0) continue;
      const DqFlag flag = DqFlag::of<kCfg>(first + i / 4, thread);
      u32* const word = flags + flag.word;
      if (!(x < 0)) ptx::red_or_b32(word, 1u << flag.bit << i % 4);
      if (!(x > 0)) ptx::red_or_b32(word + kWgThreads, 1u << flag.bit << i % 4);
      ptx::st_shared(at, 0.f);
    }
  }
};

}  // namespace fa3::sm90
