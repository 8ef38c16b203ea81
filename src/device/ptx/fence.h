// SPDX-License-Identifier: BSD-3-Clause
// fence.h — orders between accesses of this thread, and between the generic and the async proxy.
// Each thread fences its own accesses, before the barrier that hands them on. Sections are those of
// PTX ISA 9.1.
#pragma once

#include "device/ptx/twin.h"
#include "device/types.h"

namespace fa3::ptx {

// fence.proxy.async.shared::cta (9.7.13.4): generic accesses to shared memory, both reads and
// writes, before later ones of TMA or wgmma.
FA3_DEV void fence_proxy_async_shared(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
  twin::fence_proxy_async(twin::ProxySpace::kShared, where);
#endif
}

// fence.proxy.async.global (9.7.13.4): the same for global memory that TMA will read.
FA3_DEV void fence_proxy_async_global(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("fence.proxy.async.global;" ::: "memory");
#else
  twin::fence_proxy_async(twin::ProxySpace::kGlobal, where);
#endif
}

// fence.proxy.async (9.7.13.4): all spaces; slower than the one that is meant.
FA3_DEV void fence_proxy_async(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("fence.proxy.async;" ::: "memory");
#else
  twin::fence_proxy_async(twin::ProxySpace::kAll, where);
#endif
}

// fence.acq_rel.cta (9.7.13.4).
FA3_DEV void fence_acq_rel_cta(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("fence.acq_rel.cta;" ::: "memory");
#else
  twin::fence(twin::Order::kAcqRel, twin::Scope::kCta, where);
#endif
}

// fence.acq_rel.cluster (9.7.13.4).
FA3_DEV void fence_acq_rel_cluster(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("fence.acq_rel.cluster;" ::: "memory");
#else
  twin::fence(twin::Order::kAcqRel, twin::Scope::kCluster, where);
#endif
}

// fence.acq_rel.gpu (9.7.13.4).
FA3_DEV void fence_acq_rel_gpu(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
#else
  twin::fence(twin::Order::kAcqRel, twin::Scope::kGpu, where);
#endif
}

// fence.acq_rel.sys (9.7.13.4).
FA3_DEV void fence_acq_rel_sys(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("fence.acq_rel.sys;" ::: "memory");
#else
  twin::fence(twin::Order::kAcqRel, twin::Scope::kSystem, where);
#endif
}

// fence.mbarrier_init.release.cluster (9.7.13.4): after the last mbar_init, before the barrier that
// signals the other threads.
FA3_DEV void fence_mbar_init(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  twin::fence_mbar_init(where);
#endif
}

}  // namespace fa3::ptx
