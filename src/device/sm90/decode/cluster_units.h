// SPDX-License-Identifier: BSD-3-Clause
// cluster_units.h — the other way to cut decode work: a cluster has a unit, of which each of its
// CTAs has an equal part of the KV tiles. For units that are alike, which are those of one sequence
// or of sequences without lengths, and few enough for all to run at once: what their CTAs leave is
// merged in shared memory (cluster_merge.h), so that there is no second kernel.
#pragma once

#include "device/ptx/grid.h"
#include "device/ptx/thread.h"
#include "device/sm90/decode/unit.h"

namespace fa3::sm90 {

// GRID  x: clusters, y: KV heads
template <DecodeConfig kCfg>
class ClusterUnits : DecodeEntries<kCfg> {
  using Entries = DecodeEntries<kCfg>;
  static_assert(kCfg.one_tile, "a sequence has one unit of each KV head");

 public:
  FA3_DEV explicit ClusterUnits(const DecodeShape& shape) : Entries(shape) {}

  // f(unit, first, end) for each unit of the CTA's cluster, with the KV tiles that are the CTA's
  // own: maybe none.
  template <class F>
  FA3_DEV void for_each(const F& f) const {
    const Divider& cluster = this->shape_.cluster;
    const i32 rank = static_cast<i32>(ptx::cluster_rank()), count = units_of_head();
    const i32 clusters = cluster.quotient(static_cast<i32>(ptx::grid_dim_x()));
    i32 n = cluster.quotient(static_cast<i32>(ptx::block_index_x()));
    FA3_NO_UNROLL
    for (; n < count; n += clusters) {
      DecodeUnit unit = at(n);
      unit.kv_head = static_cast<i32>(ptx::block_index_y());
      const i32 tiles = unit.range.end - unit.range.first;
      const i32 least = cluster.quotient(tiles), longer = cluster.remainder(tiles);
      const i32 first = unit.range.first + rank * least + min(rank, longer);
      f(unit, first, first + least + (rank < longer ? 1 : 0));
    }
  }

 private:
  // Of a KV head; those of no sequence where there is one sequence.
  FA3_DEV i32 units_of_head() const {
    if constexpr (!kCfg.ragged) return this->shape_.batch;
    return units_of(0) + (this->last() > 0 ? units_of(1) : 0);
  }
  FA3_DEV i32 units_of(i32 entry) const {
    return static_cast<i32>(this->tiles_of_rows(this->entry(entry).q));
  }
  FA3_DEV DecodeUnit at(i32 n) const {
    i32 tile = 0;
    if constexpr (kCfg.ragged) {
      const i32 of_sequence = units_of(0);
      tile = n < of_sequence ? n : n - of_sequence, n = n < of_sequence ? 0 : 1;
    }
    DecodeUnit unit = this->entry(n);
    this->set_tile(unit, static_cast<u32>(tile), 0, 0);
    return unit;
  }
};

}  // namespace fa3::sm90
