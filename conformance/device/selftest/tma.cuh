// SPDX-License-Identifier: BSD-3-Clause
// tma.cuh — conformance of TMA's tensor copies: a box to shared memory and out again unchanged; to
// both CTAs of a cluster; an image in shared memory to a box of a tensor, stored or added.
#pragma once

#include "device/ptx/barrier.h"
#include "device/ptx/bulk.h"
#include "device/ptx/fence.h"
#include "device/ptx/mbarrier.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"

namespace fa3::selftest {

inline constexpr int kTmaThreads = 128;
inline constexpr int kTmaImageBytes = 32 << 10;

struct TmaArgs {
  TensorMap map;
  u8* image;          // shared memory: written by loads ([CTA][slice][byte]), read by stores
  u32 bytes;          // of one box, a multiple of 16
  i32 coordinate[5];  // of the box; with multicast, of the slice that CTA 0 loads
  i32 slice_step;     // what CTA 1 adds to coordinate 1
};

struct TmaSmem {
  alignas(1024) u8 image[2][kTmaImageBytes];
  alignas(8) u64 full;
  FA3_NAMED(image, full)
};

template <int kRank>
FA3_DEV void load_box(u32 to, const TensorMap& map, u32 bar, const i32 (&c)[5]) {
  static_assert(kRank >= 2 && kRank <= 5, "load_box: rank 2 to 5");
  if constexpr (kRank == 2) ptx::tma_load_2d(to, map, bar, c[0], c[1]);
  if constexpr (kRank == 3) ptx::tma_load_3d(to, map, bar, c[0], c[1], c[2]);
  if constexpr (kRank == 4) ptx::tma_load_4d(to, map, bar, c[0], c[1], c[2], c[3]);
  if constexpr (kRank == 5) ptx::tma_load_5d(to, map, bar, c[0], c[1], c[2], c[3], c[4]);
}

template <int kRank>
FA3_DEV void load_box_multicast(u32 to, const TensorMap& map, u32 bar, const i32 (&c)[5],
                                u16 mask) {
  static_assert(kRank >= 2 && kRank <= 5, "load_box_multicast: rank 2 to 5");
  if constexpr (kRank == 2) ptx::tma_load_multicast_2d(to, map, bar, c[0], c[1], mask);
  if constexpr (kRank == 3) ptx::tma_load_multicast_3d(to, map, bar, c[0], c[1], c[2], mask);
  if constexpr (kRank == 4) ptx::tma_load_multicast_4d(to, map, bar, c[0], c[1], c[2], c[3], mask);
  if constexpr (kRank == 5) {
    ptx::tma_load_multicast_5d(to, map, bar, c[0], c[1], c[2], c[3], c[4], mask);
  }
}

template <int kRank>
FA3_DEV void store_box(const TensorMap& map, u32 from, const i32 (&c)[5]) {
  static_assert(kRank >= 2 && kRank <= 5, "store_box: rank 2 to 5");
  if constexpr (kRank == 2) ptx::tma_store_2d(map, from, c[0], c[1]);
  if constexpr (kRank == 3) ptx::tma_store_3d(map, from, c[0], c[1], c[2]);
  if constexpr (kRank == 4) ptx::tma_store_4d(map, from, c[0], c[1], c[2], c[3]);
  if constexpr (kRank == 5) ptx::tma_store_5d(map, from, c[0], c[1], c[2], c[3], c[4]);
}

template <int kRank>
FA3_DEV void add_box(const TensorMap& map, u32 from, const i32 (&c)[5]) {
  static_assert(kRank >= 2 && kRank <= 5, "add_box: rank 2 to 5");
  if constexpr (kRank == 2) ptx::tma_reduce_add_2d(map, from, c[0], c[1]);
  if constexpr (kRank == 3) ptx::tma_reduce_add_3d(map, from, c[0], c[1], c[2]);
  if constexpr (kRank == 4) ptx::tma_reduce_add_4d(map, from, c[0], c[1], c[2], c[3]);
  if constexpr (kRank == 5) ptx::tma_reduce_add_5d(map, from, c[0], c[1], c[2], c[3], c[4]);
}

// Shared memory to global memory, 16 bytes at a time, all threads.
FA3_DEV void dump(u8* to, const u8* from, u32 bytes) {
  using Chunk = ptx::Vec<u32, 4>;
  for (u32 i = ptx::thread_index(); i < bytes / 16; i += ptx::block_threads()) {
    ptx::st_global(reinterpret_cast<Chunk*>(to) + i,
                   ptx::ld_shared(reinterpret_cast<const Chunk*>(from) + i));
  }
}

// Global memory to shared memory, likewise.
FA3_DEV void fill(u8* to, const u8* from, u32 bytes) {
  using Chunk = ptx::Vec<u32, 4>;
  for (u32 i = ptx::thread_index(); i < bytes / 16; i += ptx::block_threads()) {
    ptx::st_shared(reinterpret_cast<Chunk*>(to) + i,
                   ptx::ld_global(reinterpret_cast<const Chunk*>(from) + i));
  }
}

template <int kRank>
FA3_KERNEL(kTmaThreads)
void tma_load(FA3_GRID_CONSTANT const TmaArgs args) {
  auto& smem = ptx::smem_as<TmaSmem>();
  const u32 full = ptx::smem_address(&smem.full);
  if (ptx::thread_index() == 0) {
    ptx::tma_prefetch_map(args.map);
    ptx::mbar_init(full, 1);
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  if (ptx::thread_index() == 0) {
    ptx::mbar_arrive_expect_tx(full, args.bytes);
    load_box<kRank>(ptx::smem_address(smem.image[0]), args.map, full, args.coordinate);
  }
  ptx::mbar_wait(full, 0);
  dump(args.image, smem.image[0], args.bytes);
}

// Cluster of 2: each CTA loads one slice into both.
template <int kRank>
FA3_KERNEL(kTmaThreads)
void tma_multicast(FA3_GRID_CONSTANT const TmaArgs args) {
  auto& smem = ptx::smem_as<TmaSmem>();
  const u32 full = ptx::smem_address(&smem.full);
  const u32 rank = ptx::cluster_rank();
  if (ptx::thread_index() == 0) {
    ptx::mbar_init(full, 1);
    ptx::fence_mbar_init();
  }
  ptx::cluster_sync();
  if (ptx::thread_index() == 0) {
    ptx::mbar_arrive_expect_tx(full, 2 * args.bytes);
    i32 c[5];
    for (int i = 0; i < 5; ++i) c[i] = args.coordinate[i];
    c[1] += static_cast<i32>(rank) * args.slice_step;
    load_box_multicast<kRank>(ptx::smem_address(smem.image[rank]), args.map, full, c, 0b11);
  }
  ptx::mbar_wait(full, 0);
  for (u32 slice = 0; slice < 2; ++slice) {
    dump(args.image + (2 * rank + slice) * args.bytes, smem.image[slice], args.bytes);
  }
  ptx::cluster_sync();  // no CTA exits while a peer's copy may be in flight
}

template <int kRank, bool kAdd>
FA3_KERNEL(kTmaThreads)
void tma_store(FA3_GRID_CONSTANT const TmaArgs args) {
  auto& smem = ptx::smem_as<TmaSmem>();
  fill(smem.image[0], args.image, args.bytes);
  ptx::fence_proxy_async_shared();
  ptx::cta_sync();
  if (ptx::thread_index() == 0) {
    const u32 image = ptx::smem_address(smem.image[0]);
    if constexpr (kAdd) {
      add_box<kRank>(args.map, image, args.coordinate);
    } else {
      store_box<kRank>(args.map, image, args.coordinate);
    }
    ptx::bulk_commit();
    ptx::bulk_wait<0>();
  }
}

}  // namespace fa3::selftest
