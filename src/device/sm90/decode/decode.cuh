// SPDX-License-Identifier: BSD-3-Clause
// decode.cuh — forward attention of few queries on Hopper, which reads each key and value of a KV
// head once for all query heads of its group, and divides the keys of a call evenly between CTAs.
// CONTRACT  O = softmax(score(Q·Kᵀ) + mask)·V per head, LSE in natural logarithm, of tiles that one
//           CTA or a cluster computes; of those that other CTAs share their parts, for combine().
//           cu_seqlens and seqused may hold anything.
// ROLES     the first one or two warpgroups are consumers: GEMMs, softmax, store, each for some of
//           the packed rows, few (consumer.h) or many (wide_consumer.h) · a thread of the next
//           warp is the producer and loads K and V by TMA; from a cache all lanes of it, or where
//           runs are short (kv_runs.h) four warps. All find the units of their CTA (units.h) or
//           cluster (cluster_units.h), whose consumers merge (cluster_merge.h)
// BARRIERS  name            count           tx bytes  arrives                    waits
//           k_full[s]       1               K tile    producer, TMA              consumers
//                           (rows: 33, the lanes of the warp that copies the tile, when their
//                           copies are there, and lane 0 once more)
//           k_empty[s]      consumers       –         thread 0 of each           producer
//           v_full, v_empty                           as K
//           kBar + i        128 (named)     –         consumer i                 the same
//           the cluster's   all             –         consumers, producer        the same
#pragma once

#include "device/ptx/barrier.h"
#include "device/ptx/grid.h"
#include "device/ptx/registers.h"
#include "device/ptx/smem.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"
#include "device/sm90/decode/cluster_merge.h"
#include "device/sm90/decode/cluster_units.h"
#include "device/sm90/decode/consumer.h"
#include "device/sm90/decode/producer.h"
#include "device/sm90/decode/units.h"
#include "device/sm90/decode/wide_consumer.h"

namespace fa3::sm90 {

// f(unit, first, end, whole, slot) for each unit of the CTA's share, with the KV tiles of it that
// are the CTA's own.
template <DecodeConfig kCfg, class F>
requires(kCfg.part_tiles == 0) FA3_DEV
    void for_units(DecodeUnits<kCfg>& units, const DecodeArgs&, const F& f) {
  const u32 cta = ptx::block_index_x();
  if (cta >= units.ctas()) return;
  const auto [begin, end] = units.share(cta);
  FA3_NO_UNROLL
  for (u32 place = begin; place < end;) {
    const DecodeUnit unit = units.at(place);
    if (units.whole() && unit.room_end > end) return;
    const u32 from = units.whole() ? unit.begin : max(place, unit.begin);
    const u32 stop = min(unit.end(), end);
    place = unit.room_end;
    if (from >= stop) continue;
    const bool begins = from == unit.begin;
    const i32 first = unit.range.first + static_cast<i32>(from - unit.begin);
    f(unit, first, unit.range.empty() ? first : first + static_cast<i32>(stop - from),
      begins && stop == unit.end(), part_slot(cta, begins));
  }
}

// The same for each part of a fixed number of keys that ends in the CTA's share.
template <DecodeConfig kCfg, class F>
requires(kCfg.part_tiles > 0) FA3_DEV
    void for_units(DecodeUnits<kCfg>& units, const DecodeArgs& args, const F& f) {
  using Parts = UnitParts<kCfg.part_tiles>;
  const u32 cta = ptx::block_index_x();
  if (cta >= units.ctas()) return;
  auto [place, end] = units.share(cta);
  FA3_NO_UNROLL
  while (place < end) {
    const DecodeUnit unit = units.at(place);
    if (place >= unit.end()) {
      place = unit.room_end;
      continue;
    }
    place = max(place, unit.begin);
    const Parts parts = Parts::of(unit, args.shape, args.parts, kCfg.rows);
    const i32 tile = unit.range.first + static_cast<i32>(place - unit.begin);
    const i32 part = tile / kCfg.part_tiles;
    const i32 first = max(part * kCfg.part_tiles, unit.range.first);
    const i32 stop = min((part + 1) * kCfg.part_tiles, unit.range.end);
    const bool none = unit.range.empty();
    place = none ? unit.end() : unit.begin + static_cast<u32>(stop - unit.range.first);
    if (place > end) return;
    f(unit, none ? 0 : first, none ? 0 : stop, parts.one(),
      parts.slot + static_cast<u32>(part - parts.first));
  }
}

// The same for each unit of the CTA's cluster, which is merged there.
template <DecodeConfig kCfg, class F>
FA3_DEV void for_units(const ClusterUnits<kCfg>& units, const DecodeArgs&, const F& f) {
  units.for_each(
      [&](const DecodeUnit& unit, i32 first, i32 end) { f(unit, first, end, false, 0u); });
}

template <DecodeConfig kCfg>
FA3_DEV auto units_of(const DecodeShape& shape) {
  if constexpr (kCfg.clusters)
    return ClusterUnits<kCfg>(shape);
  else
    return DecodeUnits<kCfg>(shape);
}

template <DecodeConfig kCfg>
FA3_DEV void run_together(DecodeSmem<kCfg>& smem, const DecodeArgs& args) {
  const u32 warp = ptx::warp_index();
  if (warp >= kCfg.consumer_warps() + kCfg.producer_warps()) return;
  const bool consumes = warp < kCfg.consumer_warps();
  auto units = units_of<kCfg>(args.shape);
  DecodeConsumer<kCfg> consumer(smem, args);
  DecodeProducer<kCfg> producer{smem, args};
  // One loop for both, since its code is long and runs a few times: it has to be fetched, too.
  for_units(units, args, [&](const DecodeUnit& unit, i32 first, i32 end, bool whole, u32 slot) {
    if (consumes) {
      consumer.run(unit, first, end, whole, slot);
    } else {
      producer.run(unit, first, end);
    }
    if constexpr (kCfg.clusters) {
      ptx::cluster_sync();  // all parts are there
      if (consumes) ClusterMerge<kCfg>{consumer.own, args, unit}.run(consumer.thread);
      ptx::cluster_sync();  // and have been read
    }
  });
  if constexpr (kCfg.kv == KvSource::kRows)
    if (!consumes) ptx::cp_async_wait_all();
}

// A loop for each role, which has registers of its own number.
template <DecodeConfig kCfg, class Consumer>
FA3_DEV void run_by_role(DecodeSmem<kCfg>& smem, const DecodeArgs& args) {
  const u32 warp = ptx::warp_index();
  auto units = units_of<kCfg>(args.shape);
  if (warp < kCfg.consumer_warps()) {
    if constexpr (kCfg.consumer_registers() > 0) ptx::reg_increase<kCfg.consumer_registers()>();
    Consumer consumer(smem, args);
    for_units(units, args, [&](const DecodeUnit& unit, i32 first, i32 end, bool whole, u32 slot) {
      consumer.run(unit, first, end, whole, slot);
      if constexpr (kCfg.clusters) {
        ptx::cluster_sync();  // all parts are there
        ClusterMerge<kCfg>{smem.consumer[0], args, unit}.run(ptx::thread_index());
        ptx::cluster_sync();  // and have been read
      }
    });
  } else {
    if constexpr (kCfg.producer_registers() > 0) ptx::reg_decrease<kCfg.producer_registers()>();
    if (warp >= kCfg.consumer_warps() + kCfg.producer_warps()) return;
    DecodeProducer<kCfg> producer{smem, args};
    for_units(units, args, [&](const DecodeUnit& unit, i32 first, i32 end, bool, u32) {
      producer.run(unit, first, end);
      if constexpr (kCfg.clusters) {
        ptx::cluster_sync();
        ptx::cluster_sync();
      }
    });
    if constexpr (kCfg.kv == KvSource::kRows) ptx::cp_async_wait_all();
  }
}

template <DecodeConfig kCfg>
FA3_KERNEL(kCfg.threads(), kCfg.ctas_per_sm)
void decode(FA3_GRID_CONSTANT const DecodeArgs args) {
  using Smem = DecodeSmem<kCfg>;
  static_assert(sizeof(Smem) <= kCfg.smem_bytes(), "smem_bytes() forgets something");
  auto& smem = ptx::smem_as<Smem>();
  if (ptx::thread_index() == 0) {
    ptx::tma_prefetch_map(args.k);
    ptx::tma_prefetch_map(args.v);
    smem.init_barriers();
    ptx::fence_mbar_init();  // sim:spare(no_tma)
  }
  // The next grid begins when inputs may be read: where it merges, it reads the lengths ahead.
  ptx::pdl_wait();
  ptx::pdl_launch();
  ptx::cta_sync();
  if constexpr (kCfg.wide)
    run_by_role<kCfg, WideConsumer<kCfg>>(smem, args);
  else if constexpr (kCfg.consumer_registers() > 0)
    run_by_role<kCfg, DecodeConsumer<kCfg>>(smem, args);
  else
    run_together<kCfg>(smem, args);
}

}  // namespace fa3::sm90
