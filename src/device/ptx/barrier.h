// SPDX-License-Identifier: BSD-3-Clause
// barrier.h — barriers of warps, CTAs and clusters. Sections are those of PTX ISA 9.1.
#pragma once

#include "device/ptx/twin.h"
#include "device/types.h"

namespace fa3::ptx {

// barrier.sync.aligned (9.7.13.1): arrives at barrier `id` (0…15) and waits until `threads` have, a
// multiple of 32 that all participants give alike. Whole warps only.
FA3_DEV void bar_sync(u32 id, u32 threads, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("barrier.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
#else
  twin::bar_sync(id, threads, where);
#endif
}

// barrier.arrive.aligned (9.7.13.1): the same without waiting.
FA3_DEV void bar_arrive(u32 id, u32 threads, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("barrier.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
#else
  twin::bar_arrive(id, threads, where);
#endif
}

// barrier.sync.aligned 0 (9.7.13.1): all threads of the CTA; takes barrier 0.
FA3_DEV void cta_sync(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("barrier.sync.aligned 0;" ::: "memory");
#else
  twin::cta_sync(where);
#endif
}

// bar.warp.sync (9.7.13.2): also orders memory among the lanes of the mask.
FA3_DEV void warp_sync(u32 mask = ~0u, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("bar.warp.sync %0;" ::"r"(mask) : "memory");
#else
  twin::warp_sync(mask, where);
#endif
}

// barrier.cluster.arrive.release.aligned (9.7.13.3).
FA3_DEV void cluster_arrive(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#else
  twin::cluster_arrive(true, where);
#endif
}

// barrier.cluster.arrive.relaxed.aligned (9.7.13.3): orders no memory; enough after
// fence_mbar_init.
FA3_DEV void cluster_arrive_relaxed(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#else
  twin::cluster_arrive(false, where);
#endif
}

// barrier.cluster.wait.acquire.aligned (9.7.13.3): waits until all threads of the cluster arrived.
FA3_DEV void cluster_wait(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  twin::cluster_wait(where);
#endif
}

// barrier.cluster.arrive.release.aligned and barrier.cluster.wait.acquire.aligned (9.7.13.3).
FA3_DEV void cluster_sync(Where where = Where::here()) {
  cluster_arrive(where);
  cluster_wait(where);
}

}  // namespace fa3::ptx
