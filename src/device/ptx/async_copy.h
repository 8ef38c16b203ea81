// SPDX-License-Identifier: BSD-3-Clause
// async_copy.h — cp.async: asynchronous copies of a single thread, for addresses that no tensor map
// describes. Groups belong to a thread. Sections are those of PTX ISA 9.1.
#pragma once

#include "device/ptx/twin.h"
#include "device/types.h"

namespace fa3::ptx {

// cp.async.cg.shared.global (9.7.9.25.3.1): 16 bytes, past L1; what is beyond `source_bytes` (0…16)
// arrives as zeros and is not read.
FA3_DEV void cp_async_16(u32 to, const void* from, u32 source_bytes = 16,
                         Where where = Where::here()) {
#if FA3_GPU
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(source_bytes)
               : "memory");
#else
  twin::cp_async(to, from, 16, source_bytes, where);
#endif
}

// cp.async.commit_group (9.7.9.25.3.2).
FA3_DEV void cp_async_commit(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  twin::cp_async_commit(where);
#endif
}

// cp.async.wait_group (9.7.9.25.3.3): all but the last kPending groups of this thread are complete.
template <int kPending>
FA3_DEV void cp_async_wait(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#else
  twin::cp_async_wait(kPending, where);
#endif
}

// cp.async.wait_all (9.7.9.25.3.3): also copies not yet committed.
FA3_DEV void cp_async_wait_all(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  twin::cp_async_wait(~0u, where);
#endif
}

// cp.async.mbarrier.arrive.shared::cta.b64 (9.7.13.15.15): arrives when this thread's copies so far
// are complete; expects that arrival itself, so the barrier's count need not include it.
FA3_DEV void cp_async_mbar_arrive(u32 bar, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
#else
  twin::cp_async_mbar_arrive(bar, false, where);
#endif
}

// cp.async.mbarrier.arrive.noinc.shared::cta.b64 (9.7.13.15.15): the barrier's count includes it.
FA3_DEV void cp_async_mbar_arrive_noinc(u32 bar, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
#else
  twin::cp_async_mbar_arrive(bar, true, where);
#endif
}

}  // namespace fa3::ptx
