// SPDX-License-Identifier: BSD-3-Clause
// tma_store.h — TMA: boxes of a tensor from shared to global memory, and into the L2 cache.
// Coordinates count elements, innermost dimension first, none negative for stores; what lies
// outside the tensor is not written. Stores belong to the bulk groups of bulk.h. Sections are those
// of PTX ISA 9.1.
#pragma once

#include "device/ptx/twin.h"
#include "device/tensor_map.h"
#include "device/types.h"

namespace fa3::ptx {

// cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group (9.7.9.27.1.2).
FA3_DEV void tma_store_1d(const TensorMap& map, u32 from, i32 c0, Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group"
      " [%0, {%2}], [%1];" ::"l"(&map),
      "r"(from), "r"(c0)
      : "memory");
#else
  const i32 c[] = {c0};
  twin::tma_store(map, from, c, 1, false, where);
#endif
}

// cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group (9.7.9.27.1.2).
FA3_DEV void tma_store_2d(const TensorMap& map, u32 from, i32 c0, i32 c1,
                          Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
      " [%0, {%2, %3}], [%1];" ::"l"(&map),
      "r"(from), "r"(c0), "r"(c1)
      : "memory");
#else
  const i32 c[] = {c0, c1};
  twin::tma_store(map, from, c, 2, false, where);
#endif
}

// cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group (9.7.9.27.1.2).
FA3_DEV void tma_store_3d(const TensorMap& map, u32 from, i32 c0, i32 c1, i32 c2,
                          Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group"
      " [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
      "r"(from), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
#else
  const i32 c[] = {c0, c1, c2};
  twin::tma_store(map, from, c, 3, false, where);
#endif
}

// cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group (9.7.9.27.1.2).
FA3_DEV void tma_store_4d(const TensorMap& map, u32 from, i32 c0, i32 c1, i32 c2, i32 c3,
                          Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group"
      " [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
      "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
#else
  const i32 c[] = {c0, c1, c2, c3};
  twin::tma_store(map, from, c, 4, false, where);
#endif
}

// cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group (9.7.9.27.1.2).
FA3_DEV void tma_store_5d(const TensorMap& map, u32 from, i32 c0, i32 c1, i32 c2, i32 c3, i32 c4,
                          Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group"
      " [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
      "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
#else
  const i32 c[] = {c0, c1, c2, c3, c4};
  twin::tma_store(map, from, c, 5, false, where);
#endif
}

// cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group (9.7.9.27.1.3): each
// element an atomic addition.
FA3_DEV void tma_reduce_add_1d(const TensorMap& map, u32 from, i32 c0,
                               Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group"
      " [%0, {%2}], [%1];" ::"l"(&map),
      "r"(from), "r"(c0)
      : "memory");
#else
  const i32 c[] = {c0};
  twin::tma_store(map, from, c, 1, true, where);
#endif
}

// cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group (9.7.9.27.1.3): each
// element an atomic addition.
FA3_DEV void tma_reduce_add_2d(const TensorMap& map, u32 from, i32 c0, i32 c1,
                               Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"
      " [%0, {%2, %3}], [%1];" ::"l"(&map),
      "r"(from), "r"(c0), "r"(c1)
      : "memory");
#else
  const i32 c[] = {c0, c1};
  twin::tma_store(map, from, c, 2, true, where);
#endif
}

// cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group (9.7.9.27.1.3).
FA3_DEV void tma_reduce_add_3d(const TensorMap& map, u32 from, i32 c0, i32 c1, i32 c2,
                               Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group"
      " [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
      "r"(from), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
#else
  const i32 c[] = {c0, c1, c2};
  twin::tma_store(map, from, c, 3, true, where);
#endif
}

// cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group (9.7.9.27.1.3).
FA3_DEV void tma_reduce_add_4d(const TensorMap& map, u32 from, i32 c0, i32 c1, i32 c2, i32 c3,
                               Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group"
      " [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
      "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
#else
  const i32 c[] = {c0, c1, c2, c3};
  twin::tma_store(map, from, c, 4, true, where);
#endif
}

// cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group (9.7.9.27.1.3).
FA3_DEV void tma_reduce_add_5d(const TensorMap& map, u32 from, i32 c0, i32 c1, i32 c2, i32 c3,
                               i32 c4, Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group"
      " [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
      "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
#else
  const i32 c[] = {c0, c1, c2, c3, c4};
  twin::tma_store(map, from, c, 5, true, where);
#endif
}

// cp.async.bulk.prefetch.tensor.1d.L2.global.tile (9.7.9.27.1.4).
FA3_DEV void tma_prefetch_1d(const TensorMap& map, i32 c0, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("cp.async.bulk.prefetch.tensor.1d.L2.global.tile [%0, {%1}];" ::"l"(&map), "r"(c0)
               : "memory");
#else
  const i32 c[] = {c0};
  twin::tma_prefetch(map, c, 1, where);
#endif
}

// cp.async.bulk.prefetch.tensor.2d.L2.global.tile (9.7.9.27.1.4).
FA3_DEV void tma_prefetch_2d(const TensorMap& map, i32 c0, i32 c1, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(&map),
               "r"(c0), "r"(c1)
               : "memory");
#else
  const i32 c[] = {c0, c1};
  twin::tma_prefetch(map, c, 2, where);
#endif
}

// cp.async.bulk.prefetch.tensor.3d.L2.global.tile (9.7.9.27.1.4).
FA3_DEV void tma_prefetch_3d(const TensorMap& map, i32 c0, i32 c1, i32 c2,
                             Where where = Where::here()) {
#if FA3_GPU
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(&map),
               "r"(c0), "r"(c1), "r"(c2)
               : "memory");
#else
  const i32 c[] = {c0, c1, c2};
  twin::tma_prefetch(map, c, 3, where);
#endif
}

// cp.async.bulk.prefetch.tensor.4d.L2.global.tile (9.7.9.27.1.4).
FA3_DEV void tma_prefetch_4d(const TensorMap& map, i32 c0, i32 c1, i32 c2, i32 c3,
                             Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(&map),
      "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
#else
  const i32 c[] = {c0, c1, c2, c3};
  twin::tma_prefetch(map, c, 4, where);
#endif
}

// cp.async.bulk.prefetch.tensor.5d.L2.global.tile (9.7.9.27.1.4).
FA3_DEV void tma_prefetch_5d(const TensorMap& map, i32 c0, i32 c1, i32 c2, i32 c3, i32 c4,
                             Where where = Where::here()) {
#if FA3_GPU
  asm volatile(
      "cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %2, %3, %4, %5}];" ::"l"(&map),
      "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
#else
  const i32 c[] = {c0, c1, c2, c3, c4};
  twin::tma_prefetch(map, c, 5, where);
#endif
}

}  // namespace fa3::ptx
