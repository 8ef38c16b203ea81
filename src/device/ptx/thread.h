// SPDX-License-Identifier: BSD-3-Clause
// thread.h — which thread this is, in its CTA, grid and cluster. CTAs are one-dimensional. Sections
// are those of PTX ISA 9.1.
#pragma once

#include "device/ptx/twin.h"
#include "device/ptx/warp.h"
#include "device/types.h"

namespace fa3::ptx {

// mov.u32 %tid.x (10.1).
FA3_DEV u32 thread_index() {
#if FA3_GPU
  return threadIdx.x;
#else
  return twin::ids().thread;
#endif
}

// mov.u32 %ntid.x (10.2).
FA3_DEV u32 block_threads() {
#if FA3_GPU
  return blockDim.x;
#else
  return twin::ids().block_threads;
#endif
}

// mov.u32 %ctaid.x (10.6).
FA3_DEV u32 block_index_x() {
#if FA3_GPU
  return blockIdx.x;
#else
  return twin::ids().block[0];
#endif
}

// mov.u32 %ctaid.y (10.6).
FA3_DEV u32 block_index_y() {
#if FA3_GPU
  return blockIdx.y;
#else
  return twin::ids().block[1];
#endif
}

// mov.u32 %ctaid.z (10.6).
FA3_DEV u32 block_index_z() {
#if FA3_GPU
  return blockIdx.z;
#else
  return twin::ids().block[2];
#endif
}

// mov.u32 %nctaid.x (10.7).
FA3_DEV u32 grid_dim_x() {
#if FA3_GPU
  return gridDim.x;
#else
  return twin::ids().grid[0];
#endif
}

// mov.u32 %nctaid.y (10.7).
FA3_DEV u32 grid_dim_y() {
#if FA3_GPU
  return gridDim.y;
#else
  return twin::ids().grid[1];
#endif
}

// mov.u32 %nctaid.z (10.7).
FA3_DEV u32 grid_dim_z() {
#if FA3_GPU
  return gridDim.z;
#else
  return twin::ids().grid[2];
#endif
}

// mov.u32 %cluster_ctarank (10.16).
FA3_DEV u32 cluster_rank() {
#if FA3_GPU
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));  // a constant: no memory clobber
  return rank;
#else
  return twin::ids().cluster_rank;
#endif
}

// mov.u32 %cluster_nctarank (10.17).
FA3_DEV u32 cluster_size() {
#if FA3_GPU
  u32 size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));  // a constant: no memory clobber
  return size;
#else
  return twin::ids().cluster_size;
#endif
}

// Derived from %tid.x: CTAs are one-dimensional, so lanes are numbered within 32 threads.
FA3_DEV u32 lane_index() { return thread_index() % 32; }

// shfl.sync.idx of %tid.x / 32 (9.7.9.6): from lane 0, so that the compiler sees one value per warp
// and keeps what depends on it in uniform registers. The whole warp must call it.
FA3_DEV u32 warp_index(Where where = Where::here()) {
  return shfl_idx(thread_index() / 32, 0, 32, ~0u, where);
}

// shfl.sync.idx of %tid.x / 32, over 4 (9.7.9.6): a warpgroup is 4 warps. The whole warp must call
// it.
FA3_DEV u32 warpgroup_index(Where where = Where::here()) { return warp_index(where) / 4; }

}  // namespace fa3::ptx
