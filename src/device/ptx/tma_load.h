// SPDX-License-Identifier: BSD-3-Clause
// tma_load.h — TMA: boxes of a tensor from global to shared memory, one thread for all. Coordinates
// count elements, innermost dimension first; what lies outside the tensor arrives as zeros; the
// mbarrier gets the bytes of the whole box. Sections are those of PTX ISA 9.1.
#pragma once

#include "device/ptx/twin.h"
#include "device/tensor_map.h"
#include "device/types.h"

namespace fa3::ptx {

// How long the L2 cache should keep what a copy touches: policies as createpolicy (9.7.9.18) makes
// them.
enum class L2Hint : u64 {
  kNormal = 0x1000000000000000,
  kEvictFirst = 0x12F0000000000000,
  kEvictLast = 0x14F0000000000000,
};

// prefetch.tensormap (9.7.9.15).
FA3_DEV void tma_prefetch_map(const TensorMap& map, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#else
  twin::prefetch_tensor_map(map, where);
#endif
}

// cp.async.bulk.tensor.1d.shared::cluster.global.tile (9.7.9.27.1.2).
FA3_DEV void tma_load_1d(u32 to, const TensorMap& map, u32 bar, i32 c0,
                         [[maybe_unused]] L2Hint hint = L2Hint::kNormal,
                         Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3}], [%2], %4;" ::"r"(to),
      "l"(&map), "r"(bar), "r"(c0), "l"(static_cast<u64>(hint))
      : "memory");
#else
  const i32 c[] = {c0};
  twin::tma_load(to, map, bar, c, 1, 0, where);
#endif
}

// cp.async.bulk.tensor.2d.shared::cluster.global.tile (9.7.9.27.1.2).
FA3_DEV void tma_load_2d(u32 to, const TensorMap& map, u32 bar, i32 c0, i32 c1,
                         [[maybe_unused]] L2Hint hint = L2Hint::kNormal,
                         Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(&map), "r"(bar), "r"(c0), "r"(c1), "l"(static_cast<u64>(hint))
      : "memory");
#else
  const i32 c[] = {c0, c1};
  twin::tma_load(to, map, bar, c, 2, 0, where);
#endif
}

// cp.async.bulk.tensor.3d.shared::cluster.global.tile (9.7.9.27.1.2).
FA3_DEV void tma_load_3d(u32 to, const TensorMap& map, u32 bar, i32 c0, i32 c1, i32 c2,
                         [[maybe_unused]] L2Hint hint = L2Hint::kNormal,
                         Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
      "l"(&map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "l"(static_cast<u64>(hint))
      : "memory");
#else
  const i32 c[] = {c0, c1, c2};
  twin::tma_load(to, map, bar, c, 3, 0, where);
#endif
}

// cp.async.bulk.tensor.4d.shared::cluster.global.tile (9.7.9.27.1.2).
FA3_DEV void tma_load_4d(u32 to, const TensorMap& map, u32 bar, i32 c0, i32 c1, i32 c2, i32 c3,
                         [[maybe_unused]] L2Hint hint = L2Hint::kNormal,
                         Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
      "l"(&map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(static_cast<u64>(hint))
      : "memory");
#else
  const i32 c[] = {c0, c1, c2, c3};
  twin::tma_load(to, map, bar, c, 4, 0, where);
#endif
}

// cp.async.bulk.tensor.5d.shared::cluster.global.tile (9.7.9.27.1.2).
FA3_DEV void tma_load_5d(u32 to, const TensorMap& map, u32 bar, i32 c0, i32 c1, i32 c2, i32 c3,
                         i32 c4, [[maybe_unused]] L2Hint hint = L2Hint::kNormal,
                         Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(to),
      "l"(&map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "l"(static_cast<u64>(hint))
      : "memory");
#else
  const i32 c[] = {c0, c1, c2, c3, c4};
  twin::tma_load(to, map, bar, c, 5, 0, where);
#endif
}

// cp.async.bulk.tensor.1d…multicast::cluster (9.7.9.27.1.2): to the same place in each CTA of
// the mask, each signalled on its own mbarrier.
FA3_DEV void tma_load_multicast_1d(u32 to, const TensorMap& map, u32 bar, i32 c0, u16 mask,
                                   [[maybe_unused]] L2Hint hint = L2Hint::kNormal,
                                   Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%3}], [%2], %4, %5;" ::"r"(to),
      "l"(&map), "r"(bar), "r"(c0), "h"(mask), "l"(static_cast<u64>(hint))
      : "memory");
#else
  const i32 c[] = {c0};
  twin::tma_load(to, map, bar, c, 1, mask, where);
#endif
}

// cp.async.bulk.tensor.2d…multicast::cluster (9.7.9.27.1.2).
FA3_DEV void tma_load_multicast_2d(u32 to, const TensorMap& map, u32 bar, i32 c0, i32 c1, u16 mask,
                                   [[maybe_unused]] L2Hint hint = L2Hint::kNormal,
                                   Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(to),
      "l"(&map), "r"(bar), "r"(c0), "r"(c1), "h"(mask), "l"(static_cast<u64>(hint))
      : "memory");
#else
  const i32 c[] = {c0, c1};
  twin::tma_load(to, map, bar, c, 2, mask, where);
#endif
}

// cp.async.bulk.tensor.3d…multicast::cluster (9.7.9.27.1.2).
FA3_DEV void tma_load_multicast_3d(u32 to, const TensorMap& map, u32 bar, i32 c0, i32 c1, i32 c2,
                                   u16 mask, [[maybe_unused]] L2Hint hint = L2Hint::kNormal,
                                   Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(to),
      "l"(&map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "h"(mask), "l"(static_cast<u64>(hint))
      : "memory");
#else
  const i32 c[] = {c0, c1, c2};
  twin::tma_load(to, map, bar, c, 3, mask, where);
#endif
}

// cp.async.bulk.tensor.4d…multicast::cluster (9.7.9.27.1.2).
FA3_DEV void tma_load_multicast_4d(u32 to, const TensorMap& map, u32 bar, i32 c0, i32 c1, i32 c2,
                                   i32 c3, u16 mask, [[maybe_unused]] L2Hint hint = L2Hint::kNormal,
                                   Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7, %8;" ::"r"(to),
      "l"(&map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "h"(mask),
      "l"(static_cast<u64>(hint))
      : "memory");
#else
  const i32 c[] = {c0, c1, c2, c3};
  twin::tma_load(to, map, bar, c, 4, mask, where);
#endif
}

// cp.async.bulk.tensor.5d…multicast::cluster (9.7.9.27.1.2).
FA3_DEV void tma_load_multicast_5d(u32 to, const TensorMap& map, u32 bar, i32 c0, i32 c1, i32 c2,
                                   i32 c3, i32 c4, u16 mask,
                                   [[maybe_unused]] L2Hint hint = L2Hint::kNormal,
                                   Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8, %9;" ::"r"(
          to),
      "l"(&map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "h"(mask),
      "l"(static_cast<u64>(hint))
      : "memory");
#else
  const i32 c[] = {c0, c1, c2, c3, c4};
  twin::tma_load(to, map, bar, c, 5, mask, where);
#endif
}

}  // namespace fa3::ptx
