// SPDX-License-Identifier: BSD-3-Clause
// barrier.h — barriers as objects: mbarriers, which are members of shared memory, and named
// barriers.
#pragma once

#include "device/ptx/barrier.h"
#include "device/ptx/mbarrier.h"
#include "device/ptx/smem.h"
#include "device/types.h"

namespace fa3 {

// An mbarrier. One thread inits all of a CTA's, then fence_mbar_init and a barrier of all threads.
struct Barrier {
  u64 bits;  // of the hardware; never read

  FA3_DEV u32 address(Where where = Where::here()) const { return ptx::smem_address(&bits, where); }

  FA3_DEV void init(u32 arrivals, Where where = Where::here()) {
    ptx::mbar_init(address(where), arrivals, where);
  }
  FA3_DEV void arrive(Where where = Where::here()) { ptx::mbar_arrive(address(where), 1, where); }
  FA3_DEV void arrive_if(bool arrives, Where where = Where::here()) {
    ptx::mbar_arrive_if(address(where), arrives, where);
  }
  // On the barrier at this offset in CTA `rank` of the cluster.
  FA3_DEV void arrive_at(u32 rank, Where where = Where::here()) {
    ptx::mbar_arrive_cluster(ptx::map_to_rank(address(where), rank, where), 1, where);
  }
  FA3_DEV void arrive_at_if(u32 rank, bool arrives, Where where = Where::here()) {
    ptx::mbar_arrive_cluster_if(ptx::map_to_rank(address(where), rank, where), arrives, where);
  }
  // Before the copies, of `bytes` in total, that complete on this barrier.
  FA3_DEV void arrive_expect_tx(u32 bytes, Where where = Where::here()) {
    ptx::mbar_arrive_expect_tx(address(where), bytes, where);
  }
  FA3_DEV bool test_wait(u32 phase, Where where = Where::here()) {
    return ptx::mbar_test_wait(address(where), phase, where);
  }
  FA3_DEV bool try_wait(u32 phase, Where where = Where::here()) {
    return ptx::mbar_try_wait(address(where), phase, where);
  }
  FA3_DEV void wait(u32 phase, Where where = Where::here()) {
    ptx::mbar_wait(address(where), phase, where);
  }
  // As wait, when other CTAs of the cluster arrive after ordinary stores that are read then.
  FA3_DEV void wait_cluster(u32 phase, Where where = Where::here()) {
    ptx::mbar_wait_cluster(address(where), phase, where);
  }
};

// One of the CTA's 16 named barriers; 0 is that of cta_sync. `threads`: all that sync or arrive.
struct NamedBarrier {
  u32 id;
  u32 threads;

  FA3_DEV void sync(Where where = Where::here()) const { ptx::bar_sync(id, threads, where); }
  FA3_DEV void arrive(Where where = Where::here()) const { ptx::bar_arrive(id, threads, where); }
};

}  // namespace fa3
