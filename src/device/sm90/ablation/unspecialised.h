// SPDX-License-Identifier: BSD-3-Clause
// unspecialised.h — the kernel without warp specialisation: the same consumers, one CTA per Q tile.
// Warp 0 finds the tile; thread 0 loads Q, and K and V at the end of each step, as soon as all
// consumers have released them: its warp waits with it, and its warpgroup at the next GEMM, which
// is what specialisation saves. Barriers as in fwd.cuh, the producer being thread 0, the scheduler
// warp 0.
#pragma once

#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/common/begin_cta.h"
#include "device/sm90/fwd/consumer.h"
#include "device/sm90/fwd/producer.h"
#include "device/sm90/fwd/scheduler.h"
#include "device/sm90/fwd/smem.h"

namespace fa3::sm90 {

template <FwdConfig kCfg>
struct Unspecialised {
  static_assert(kCfg.overlap.schedule == FwdSchedule::kOneTile);
  Producer<kCfg> producer;
  HeadRows from{};
  i32 first = 0, next_k = 0, next_v = 0;  // tiles [first, next_k], [first, next_v] are to be loaded

  // Loads Q and as many K and V as there are stages.
  FA3_DEV void start() {
    if (ptx::thread_index() == 0) {
      const FwdWork work = producer.smem.work[0].read();  // which this thread has published
      if (work.tile >= 0) {
        from = producer.keys_of(work);
        first = work.range.first;
        next_k = next_v = work.range.end - 1;
        producer.load_q(work);
        FA3_NO_UNROLL
        for (int s = 0; s < kCfg.tile.stages; ++s) load_k(), load_v();
      }
    }
    ptx::warp_sync();  // converged for wgmma  sim:spare(converge)
  }

  template <class Consumer>
  FA3_DEV void attend(Consumer& c) {
    const i32 last = c.visit.own.end - 1;
    c.first_step(last);
    refill<false>();
    c.template for_kv_tiles<false>(last - 1, [&](i32 kv_tile, auto masked) {
      c.step(kv_tile, masked);
      refill<true>();
    });
    c.release_q();
    c.last_pv();
  }

 private:
  template <bool kV>
  FA3_DEV void refill() {
    if (ptx::thread_index() == 0) {
      load_k();
      if constexpr (kV) load_v();
    }
    ptx::warp_sync();  // converged for wgmma  sim:spare(converge)
  }
  FA3_DEV void load_k() {
    if (next_k >= first) producer.load_k(from, next_k--);
  }
  FA3_DEV void load_v() {
    if (next_v >= first) producer.load_v(from, next_v--);
  }
};

template <FwdConfig kCfg>
FA3_DEV void run_unspecialised(const FwdArgs& args) {
  auto& smem = begin_cta<FwdSmem<kCfg>, kCfg.smem_bytes()>();
  if (ptx::warp_index() == 0) schedule<kCfg, EveryKey>(smem, args);
  Unspecialised<kCfg> order{{smem, args}};
  order.start();
  using Self = Consumer<kCfg, Unspecialised<kCfg>, Functors<>>;
  Self(smem, args, ptx::warpgroup_index(), order).run();
}

}  // namespace fa3::sm90
