// SPDX-License-Identifier: BSD-3-Clause
// missing.h — keys in pages that do not exist, which no valid call has. The scheduler looks for
// them while the Q tile's first keys are on their way; if there are any, the Q tile has no KV tile
// without a mask. Steps without one know nothing of them, since a question in each would take up to
// 5 %; in the others consumers look up the keys and hide those. Each way is a struct with these
// functions; c is the consumer:
//   begin(phase)                  before a Q tile's first KV tile; phase: of its slot of work
//   find(c)                       before its scores are masked
//   hide(c, kv_tile, s, masked)   those of the tile
//   finish(c)                     when the sums of keys are complete
//   find_unseen(nothing)          sets it for rows that see such keys alone
#pragma once

#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/common/hide_keys.h"
#include "device/sm90/common/kv_cache.h"
#include "device/sm90/common/work.h"
#include "device/sm90/fwd/config.h"
#include "device/sm90/fwd/mask.h"

namespace fa3::sm90 {

// Whether the Q tile visits keys of a page that does not exist. All lanes of a warp.
template <FwdConfig kCfg>
FA3_DEV bool finds_missing(const KvCacheArgs& cache, const FwdWork& work) {
  if (cache.page_table == nullptr || work.range.empty()) return false;
  constexpr i32 kLanes = 32, kLoads = 8;  // side by side
  const i32 keys = min(kCfg.tile.kv * work.range.end, work.kv_used);
  const i32 last = cache.page_of(work.kv_begin + keys - 1);
  const i32* const table = cache.page_table + i64{work.batch} * cache.max_pages;
  i32 page = cache.page_of(work.kv_begin + kCfg.tile.kv * work.range.first);
  bool any = false;
  FA3_NO_UNROLL
  for (page += static_cast<i32>(ptx::lane_index()); page <= last; page += kLanes * kLoads) {
    i32 entry[kLoads];
    FA3_UNROLL
    for (int u = 0; u < kLoads; ++u)
      entry[u] = page + kLanes * u <= last ? ptx::ld_global_nc(table + page + kLanes * u) : 0;
    FA3_UNROLL
    for (int u = 0; u < kLoads; ++u) any |= !cache.has(entry[u]);
  }
  return ptx::any(any);
}

template <FwdConfig kCfg, bool kCached = kCfg.load.cached()>
struct MissingKeys {
  u32 phase;
  bool any;         // of the Q tile
  bool nothing[2];  // else is seen by the thread's rows

  FA3_DEV void begin(u32 of_slot) {
    phase = of_slot;
    nothing[0] = nothing[1] = false;
  }
  // One value per warp, as other bounds of loops (Consumer::look_ahead).
  template <class C>
  FA3_DEV void find(C& c) {
    auto& pages = c.smem.pages;
    pages.known[c.tile.work_slot].wait(phase);
    any = ptx::redux_or(ptx::ld_shared(&pages.missing[c.tile.work_slot])) != 0;
    if (any) c.visit.own.unmasked_end = c.visit.own.unmasked_first = c.visit.own.first;
  }
  template <class C, class S>
  FA3_DEV void hide(const C& c, i32 kv_tile, S& s, Masked<true>) {
    if (any) hide_keys(s, kCfg.tile.kv * kv_tile, [&](i32 key) { return is_there(c, key); });
  }
  template <class C, class S>
  FA3_DEV void hide(const C&, i32, S&, Masked<false>) {}
  template <class C>
  FA3_DEV static bool is_there(const C& c, i32 key) {
    using Work = FwdSharedWork;
    const i32* const word = c.smem.work[c.tile.work_slot].word;
    if (key >= ptx::ld_shared(word + Work::kKvUsedWord)) return false;
    const i32 row = ptx::ld_shared(word + Work::kKvBeginWord) + key;
    const KvCacheArgs& cache = c.args.cache;  // has a table: else keys are not missing
    const i64 entries = i64{ptx::ld_shared(word + Work::kBatchWord)} * cache.max_pages;
    return cache.has(ptx::ld_global_nc(cache.page_table + entries + cache.page_of(row)));
  }
  template <class C>
  FA3_DEV void finish(const C& c) {
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) nothing[h] = any && c.tile.softmax.sum[h] == 0.f;
  }
  FA3_DEV void find_unseen(bool (&unseen)[2]) const {
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) unseen[h] = unseen[h] || nothing[h];
  }
};

template <FwdConfig kCfg>
struct MissingKeys<kCfg, false> {
  FA3_DEV void begin(u32) {}
  template <class C>
  FA3_DEV void find(C&) {}
  template <class C, class S, class M>
  FA3_DEV void hide(const C&, i32, S&, M) {}
  template <class C>
  FA3_DEV void finish(const C&) {}
  FA3_DEV void find_unseen(bool (&)[2]) const {}
};

}  // namespace fa3::sm90
