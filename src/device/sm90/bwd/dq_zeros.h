// SPDX-License-Identifier: BSD-3-Clause
// dq_zeros.h — dQ's sums are set to 0 by the main kernel, not long before they are added to, so
// that they are still in the L2 cache then: a warp of a CTA does it for a share of the Q tiles of
// the KV head that is zeros.ahead behind its own. Of problems without lengths in data, all of whose
// heads have as many tiles.
//
// Normally another CTA has zeroed a head's sums before that head's CTAs need them, but nothing
// relies on launch order: a CTA zeroes those tiles of its own head that are still unclaimed, and a
// claimed tile is zeroed without waiting for anyone.
#pragma once

#include "device/ptx/atomic.h"
#include "device/ptx/bulk.h"
#include "device/ptx/fence.h"
#include "device/ptx/memory.h"
#include "device/ptx/reduce.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/bwd/args.h"
#include "device/sm90/bwd/smem.h"
#include "device/sm90/bwd/work.h"

namespace fa3::sm90 {

// Whether all sums of a KV head (BwdCta::head_of_all) are 0.
FA3_DEV bool are_zero(const DqZeroArgs& args, i32 head) {
  return ptx::ld_acquire_gpu(args.set + head) == args.tiles;
}

// Before a dQ writer's first addition, by a lane.
template <BwdConfig kCfg>
FA3_DEV void await_zeros(const BwdArgs& args) {
  const i32 head = BwdCta<kCfg>::head_of_all(args);
  if (args.zeros.ahead == 0 || head < args.zeros.ahead) return;  // bwd_delta has set them
  FA3_NO_UNROLL
  while (!are_zero(args.zeros, head)) ptx::nanosleep(20);
}

// The warp.
template <BwdConfig kCfg>
struct DqZeros {
  BwdSmem<kCfg>& smem;
  const BwdArgs& args;

  FA3_DEV void run() const {
    if (args.zeros.ahead == 0) return;
    using Four = ptx::Vec<u32, 4>;
    for (u32 i = ptx::lane_index(); i < kZeroBytes / 16; i += 32)
      ptx::st_shared(reinterpret_cast<Four*>(smem.zeros) + i, Four{});
    ptx::fence_proxy_async_shared();
    ptx::warp_sync();
    using Cta = BwdCta<kCfg>;
    const i32 own = Cta::head_of_all(args), head = own + args.zeros.ahead;
    if (head < args.batch * Cta::heads_kv(args))
      set_tiles(head, static_cast<u32>(Cta::kv_tile(args)), static_cast<u32>(Cta::kv_tiles(args)));
    if (own >= args.zeros.ahead && ptx::any(!are_zero(args.zeros, own))) set_tiles(own, 0, 1);
  }

 private:
  // Tiles first, first + step … of a head, those that nobody has taken.
  FA3_DEV void set_tiles(i32 head, u32 first, u32 step) const {
    const u32 zeros = ptx::smem_address(smem.zeros), all = args.zeros.tiles;
    u32 set = 0;
    FA3_NO_UNROLL
    for (u32 i = first + step * ptx::lane_index(); i < all; i += 32 * step) {
      const i64 tile = i64{head} * all + i;
      if (ptx::atom_exch_u32(args.zeros.taken + tile, 1u) != 0) continue;
      u32* to = args.dq_sum + tile * kCfg.dq_sums();
      u32* const end = to + kCfg.dq_sums();
      FA3_NO_UNROLL
      for (; to != end; to += kZeroBytes / 4) ptx::bulk_store(to, zeros, kZeroBytes);
      ptx::bulk_commit();
      ++set;
    }
    if (set > 0) {
      ptx::bulk_wait<0>();
      ptx::red_add_release_u32(args.zeros.set + head, set);
    }
  }
};

}  // namespace fa3::sm90
