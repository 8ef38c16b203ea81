// SPDX-License-Identifier: BSD-3-Clause
// bulk.h — asynchronous copies of consecutive bytes, and the groups by which stores are waited for.
// Addresses and sizes are multiples of 16 bytes. Groups belong to a thread: the one that issues
// must also commit and wait. Sections are those of PTX ISA 9.1.
#pragma once

#include "device/ptx/twin.h"
#include "device/types.h"

namespace fa3::ptx {

// cp.async.bulk.shared::cluster.global.mbarrier (9.7.9.25.4.1).
FA3_DEV void bulk_load(u32 to, const void* from, u32 bytes, u32 bar, Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(bar)
      : "memory");
#else
  twin::bulk_load(to, from, bytes, bar, 0, where);
#endif
}

// cp.async.bulk.shared::cluster.global.mbarrier…multicast::cluster (9.7.9.25.4.1).
FA3_DEV void bulk_load_multicast(u32 to, const void* from, u32 bytes, u32 bar, u16 mask,
                                 Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(bar), "h"(mask)
      : "memory");
#else
  twin::bulk_load(to, from, bytes, bar, mask, where);
#endif
}

// cp.async.bulk.global.shared::cta.bulk_group (9.7.9.25.4.1).
FA3_DEV void bulk_store(void* to, u32 from, u32 bytes, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
               "r"(bytes)
               : "memory");
#else
  twin::bulk_store(to, from, bytes, where);
#endif
}

// cp.async.bulk.shared::cluster.shared::cta.mbarrier (9.7.9.25.4.1): `to` and `bar` are addresses
// of map_to_rank, of one CTA.
FA3_DEV void bulk_copy_to_cluster(u32 to, u32 from, u32 bytes, u32 bar,
                                  Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(to),
      "r"(from), "r"(bytes), "r"(bar)
      : "memory");
#else
  twin::bulk_copy_to_cluster(to, from, bytes, bar, where);
#endif
}

// cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 (9.7.9.25.4.2): flushes
// subnormals.
FA3_DEV void bulk_reduce_add_f32(float* to, u32 from, u32 bytes, Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
      "r"(from), "r"(bytes)
      : "memory");
#else
  twin::bulk_reduce_add(to, from, bytes, twin::ScalarType::kF32, where);
#endif
}

// cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 (9.7.9.25.4.2).
FA3_DEV void bulk_reduce_add_f16(void* to, u32 from, u32 bytes, Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%0], [%1], %2;" ::"l"(to),
      "r"(from), "r"(bytes)
      : "memory");
#else
  twin::bulk_reduce_add(to, from, bytes, twin::ScalarType::kF16, where);
#endif
}

// cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 (9.7.9.25.4.2).
FA3_DEV void bulk_reduce_add_bf16(void* to, u32 from, u32 bytes, Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%0], [%1], %2;" ::"l"(to),
      "r"(from), "r"(bytes)
      : "memory");
#else
  twin::bulk_reduce_add(to, from, bytes, twin::ScalarType::kBf16, where);
#endif
}

// cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 (9.7.9.25.4.2).
FA3_DEV void bulk_reduce_add_s32(i32* to, u32 from, u32 bytes, Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 [%0], [%1], %2;" ::"l"(to),
      "r"(from), "r"(bytes)
      : "memory");
#else
  twin::bulk_reduce_add(to, from, bytes, twin::ScalarType::kI32, where);
#endif
}

// cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 (9.7.9.25.4.2).
FA3_DEV void bulk_reduce_add_u32(u32* to, u32 from, u32 bytes, Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;" ::"l"(to),
      "r"(from), "r"(bytes)
      : "memory");
#else
  twin::bulk_reduce_add(to, from, bytes, twin::ScalarType::kU32, where);
#endif
}

// cp.async.bulk.commit_group (9.7.9.27.2.1): this thread's stores since the last one form a group.
FA3_DEV void bulk_commit(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#else
  twin::bulk_commit(where);
#endif
}

// cp.async.bulk.wait_group (9.7.9.27.2.2): all but the last kPending groups have written.
template <int kPending>
FA3_DEV void bulk_wait(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
#else
  twin::bulk_wait(kPending, false, where);
#endif
}

// cp.async.bulk.wait_group.read (9.7.9.27.2.2): all but the last kPending groups have read their
// shared memory, which may be written again.
template <int kPending>
FA3_DEV void bulk_wait_read(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
#else
  twin::bulk_wait(kPending, true, where);
#endif
}

}  // namespace fa3::ptx
