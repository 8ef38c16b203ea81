// SPDX-License-Identifier: BSD-3-Clause
// work.h — a CTA's unit of work.
#pragma once

#include "device/ptx/grid.h"
#include "device/sm90/bwd/args.h"
#include "device/sm90/bwd/rows.h"

namespace fa3::sm90 {

// A CTA of the kernels before and after the main one: one Q tile of one query head of one sequence,
// in reverse grid order. So the sums that the main kernel touches first were written last and are
// still in the L2 cache, and bwd_dq starts with those that the main kernel finished last.
struct BwdQTile {
  SequenceRows rows;
  i32 tile, head, batch;

  template <BwdConfig kCfg>
  FA3_DEV static BwdQTile of_cta(const RowAxis& axis, i32 batch) {
    BwdQTile work;
    work.tile = static_cast<i32>(ptx::grid_dim_x() - 1 - ptx::block_index_x());
    work.head = static_cast<i32>(ptx::grid_dim_y() - 1 - ptx::block_index_y());
    work.batch = static_cast<i32>(ptx::grid_dim_z() - 1 - ptx::block_index_z());
    work.rows = rows_of_warp<kCfg.ragged>(axis, batch, work.batch);
    return work;
  }
};

// Of the main kernel. The heads of a section take turns tile by tile, so that under a causal mask
// the longest tiles of all of them begin first and the shortest fill the grid's end. Neighbours
// form a cluster of one head.
template <BwdConfig kCfg>
struct BwdCta {
  static constexpr u32 kCluster = kCfg.cluster();

  FA3_DEV static i32 batch() { return static_cast<i32>(ptx::block_index_z()); }
  FA3_DEV static u32 rank() { return ptx::block_index_x() % kCluster; }
  FA3_DEV static i32 kv_tile(const BwdArgs& args) {
    return first_kv_tile(args) + static_cast<i32>(rank());
  }
  FA3_DEV static i32 first_kv_tile(const BwdArgs& args) {
    return static_cast<i32>((ptx::block_index_x() / kCluster >> args.section_log2) * kCluster);
  }
  FA3_DEV static i32 head_kv(const BwdArgs& args) {
    const u32 in_section = ptx::block_index_x() / kCluster & ((1u << args.section_log2) - 1);
    return static_cast<i32>((ptx::block_index_y() << args.section_log2) + in_section);
  }
  FA3_DEV static i32 heads_kv(const BwdArgs& args) {
    return static_cast<i32>(ptx::grid_dim_y() << args.section_log2);
  }
  // The KV head among those of all sequences.
  FA3_DEV static i32 head_of_all(const BwdArgs& args) {
    return batch() * heads_kv(args) + head_kv(args);
  }
  FA3_DEV static i32 kv_tiles(const BwdArgs& args) {
    return static_cast<i32>(ptx::grid_dim_x() >> args.section_log2);
  }
};

// Of the main kernel: one KV tile of one KV head of one sequence, and the Q tiles that its
// cluster visits, of each query head of the group.
struct BwdWork {
  SequenceRows q, kv;
  TileRange range;
  i32 batch, head_kv, key;  // the tile's first key

  // Of the cluster's first tile.
  template <BwdConfig kCfg>
  FA3_DEV i32 cluster_key() const {
    return key & -kCfg.cluster_kv();
  }
  // The Q tile to begin with; behind the last follows the first. Clusters begin one after the
  // other, so that those of a head do not add to one tile of dQ at a time.
  template <BwdConfig kCfg>
  FA3_DEV i32 first_q_tile() const {
    if constexpr (!kCfg.split() || kCfg.lists()) return range.first;
    return min(range.first + key / kCfg.cluster_kv(), range.end - 1);
  }

  template <BwdConfig kCfg>
  FA3_DEV static BwdWork of_cta(const BwdArgs& args) {
    BwdWork work;
    using Cta = BwdCta<kCfg>;
    work.batch = Cta::batch();
    work.head_kv = Cta::head_kv(args);
    work.key = kCfg.tile_kv() * Cta::kv_tile(args);
    work.kv = rows_of_warp<kCfg.ragged>(args.kv_axis, args.batch, work.batch);
    if (work.batch < args.batch) {  // rows of no sequence are seen by no query
      work.q = rows_of_warp<kCfg.ragged>(args.q_axis, args.batch, work.batch);
      work.range = q_tile_range(args.band, work.q.used, work.kv.used, work.cluster_key<kCfg>(),
                                kCfg.cluster_kv(), kCfg.tile_q);
    }
    return work;
  }
};

}  // namespace fa3::sm90
