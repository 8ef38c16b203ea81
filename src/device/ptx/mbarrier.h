// SPDX-License-Identifier: BSD-3-Clause
// mbarrier.h — barriers in shared memory that count arrivals and bytes. `bar` is a shared address,
// with `_cluster` in the name one of map_to_rank. Sections are those of PTX ISA 9.1.
#pragma once

#include "device/ptx/twin.h"
#include "device/types.h"

namespace fa3::ptx {

// mbarrier.init.shared::cta.b64 (9.7.13.15.9): phase 0, `count` arrivals to each phase.
FA3_DEV void mbar_init(u32 bar, u32 count, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
#else
  twin::mbar_init(bar, count, where);
#endif
}

// mbarrier.inval.shared::cta.b64 (9.7.13.15.10): the memory may hold data again.
FA3_DEV void mbar_inval(u32 bar, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
#else
  twin::mbar_inval(bar, where);
#endif
}

// mbarrier.arrive.release.cta.shared::cta.b64 (9.7.13.15.13).
FA3_DEV void mbar_arrive(u32 bar, u32 count = 1, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(count)
               : "memory");
#else
  twin::mbar_arrive(bar, count, false, twin::Scope::kCta, where);
#endif
}

// mbarrier.arrive.release.cta.shared::cta.b64 (9.7.13.15.13), where `arrives`. The predicate is
// inside so that the release stays where it is written: ptxas moves a branch behind hundreds of
// instructions.
FA3_DEV void mbar_arrive_if(u32 bar, bool arrives, Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "{.reg .pred p;\nsetp.ne.b32 p, %1, 0;\n"
      "@p mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];}" ::"r"(bar),
      "r"(u32(arrives))
      : "memory");
#else
  if (arrives) twin::mbar_arrive(bar, 1, false, twin::Scope::kCta, where);
#endif
}

// mbarrier.arrive_drop.release.cta.shared::cta.b64 (9.7.13.15.14): later phases expect one arrival
// less.
FA3_DEV void mbar_arrive_drop(u32 bar, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("mbarrier.arrive_drop.release.cta.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
#else
  twin::mbar_arrive_drop(bar, where);
#endif
}

// mbarrier.expect_tx.relaxed.cta.shared::cta.b64 (9.7.13.15.11).
FA3_DEV void mbar_expect_tx(u32 bar, u32 bytes, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(bytes)
               : "memory");
#else
  twin::mbar_expect_tx(bar, bytes, false, where);
#endif
}

// mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 (9.7.13.15.13): expects, then arrives.
FA3_DEV void mbar_arrive_expect_tx(u32 bar, u32 bytes, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(bar),
               "r"(bytes)
               : "memory");
#else
  twin::mbar_arrive_expect_tx(bar, bytes, false, where);
#endif
}

// mbarrier.arrive.release.cluster.shared::cluster.b64 (9.7.13.15.13).
FA3_DEV void mbar_arrive_cluster(u32 bar, u32 count = 1, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(bar),
               "r"(count)
               : "memory");
#else
  twin::mbar_arrive(bar, count, true, twin::Scope::kCluster, where);
#endif
}

// mbarrier.arrive.release.cluster.shared::cluster.b64 (9.7.13.15.13), where `arrives`; predicated
// inside as mbar_arrive_if.
FA3_DEV void mbar_arrive_cluster_if(u32 bar, bool arrives, Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "{.reg .pred p;\nsetp.ne.b32 p, %1, 0;\n"
      "@p mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];}" ::"r"(bar),
      "r"(u32(arrives))
      : "memory");
#else
  if (arrives) twin::mbar_arrive(bar, 1, true, twin::Scope::kCluster, where);
#endif
}

// mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 (9.7.13.15.11).
FA3_DEV void mbar_expect_tx_cluster(u32 bar, u32 bytes, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%0], %1;" ::"r"(bar),
               "r"(bytes)
               : "memory");
#else
  twin::mbar_expect_tx(bar, bytes, true, where);
#endif
}

// mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 (9.7.13.15.13).
FA3_DEV void mbar_arrive_expect_tx_cluster(u32 bar, u32 bytes, Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(bar),
      "r"(bytes)
      : "memory");
#else
  twin::mbar_arrive_expect_tx(bar, bytes, true, where);
#endif
}

// mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 (9.7.13.15.16): has the phase of this
// parity completed?
FA3_DEV bool mbar_test_wait(u32 bar, u32 parity, Where where = Where::here()) {
#if FA3_GPU
  u32 done;
  asm volatile(
      "{.reg .pred p;\nmbarrier.test_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;}"
      : "=r"(done)
      : "r"(bar), "r"(parity)
      : "memory");
  return done != 0;
#else
  return twin::mbar_test_wait(bar, parity, twin::Scope::kCta, where);
#endif
}

// mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 (9.7.13.15.16): for data of other CTAs
// of the cluster.
FA3_DEV bool mbar_test_wait_cluster(u32 bar, u32 parity, Where where = Where::here()) {
#if FA3_GPU
  u32 done;
  asm volatile(
      "{.reg .pred p;\nmbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;}"
      : "=r"(done)
      : "r"(bar), "r"(parity)
      : "memory");
  return done != 0;
#else
  return twin::mbar_test_wait(bar, parity, twin::Scope::kCluster, where);
#endif
}

// mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 (9.7.13.15.16): the same, after waiting a
// while; false does not mean that the phase has not completed since.
FA3_DEV bool mbar_try_wait(u32 bar, u32 parity, Where where = Where::here()) {
#if FA3_GPU
  u32 done;
  asm volatile(
      "{.reg .pred p;\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;}"
      : "=r"(done)
      : "r"(bar), "r"(parity)
      : "memory");
  return done != 0;
#else
  return twin::mbar_try_wait(bar, parity, twin::Scope::kCta, where);
#endif
}

// mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 (9.7.13.15.16): for data of other CTAs
// of the cluster.
FA3_DEV bool mbar_try_wait_cluster(u32 bar, u32 parity, Where where = Where::here()) {
#if FA3_GPU
  u32 done;
  asm volatile(
      "{.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;}"
      : "=r"(done)
      : "r"(bar), "r"(parity)
      : "memory");
  return done != 0;
#else
  return twin::mbar_try_wait(bar, parity, twin::Scope::kCluster, where);
#endif
}

// A loop of mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 (9.7.13.15.16).
FA3_DEV void mbar_wait(u32 bar, u32 parity, Where where = Where::here()) {
#if FA3_GPU
  while (!mbar_try_wait(bar, parity, where)) {
  }
#else
  twin::mbar_wait(bar, parity, twin::Scope::kCta, where);
#endif
}

// A loop of mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 (9.7.13.15.16).
FA3_DEV void mbar_wait_cluster(u32 bar, u32 parity, Where where = Where::here()) {
#if FA3_GPU
  while (!mbar_try_wait_cluster(bar, parity, where)) {
  }
#else
  twin::mbar_wait(bar, parity, twin::Scope::kCluster, where);
#endif
}

}  // namespace fa3::ptx
