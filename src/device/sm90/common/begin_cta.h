// SPDX-License-Identifier: BSD-3-Clause
// begin_cta.h — what a kernel with mbarriers begins with.
#pragma once

#include "device/ptx/barrier.h"
#include "device/ptx/fence.h"
#include "device/ptx/grid.h"
#include "device/ptx/smem.h"
#include "device/ptx/thread.h"

namespace fa3::sm90 {

// All threads: shared memory, of which the launch has kBytes, with its barriers initialised, when
// the previous grid has ended; in a cluster that of each CTA.
template <class Smem, int kBytes, int kCluster = 1>
FA3_DEV Smem& begin_cta() {
  static_assert(sizeof(Smem) <= kBytes, "smem_bytes() forgets something");
  auto& smem = ptx::smem_as<Smem>();
  if (ptx::thread_index() == 0) {
    smem.init_barriers();
    ptx::fence_mbar_init();
  }
  // Programmatic dependent launch: the lines above overlap the tail of the previous grid; from here
  // on the next grid may start its own.
  ptx::pdl_launch();
  ptx::pdl_wait();
  if constexpr (kCluster > 1)
    ptx::cluster_sync();
  else
    ptx::cta_sync();
  return smem;
}

}  // namespace fa3::sm90
