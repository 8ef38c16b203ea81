// SPDX-License-Identifier: BSD-3-Clause
// missing.h — keys in pages that do not exist, which no valid call has. The producer of K says so
// at the first one that it finds; from then on consumers look up the keys of every KV tile and hide
// those. Each way is a struct with these functions; c is the consumer:
//   begin()               before a Q tile's first KV tile
//   look(c)               when K of a KV tile is there: whether there may be some
//   hide(c, kv_tile, s)   those of the tile
//   finish(c)             when the sums of keys are complete
//   find_unseen(nothing)  sets it for rows that see such keys alone
#pragma once

#include "device/ptx/memory.h"
#include "device/ptx/warp.h"
#include "device/sm90/common/hide_keys.h"
#include "device/sm90/common/kv_cache.h"
#include "device/sm90/common/work.h"
#include "device/sm90/fwd/config.h"

namespace fa3::sm90 {

template <FwdConfig kCfg, bool kCached = kCfg.load.cached()>
struct MissingKeys {
  bool any;         // so far
  bool nothing[2];  // else is seen by the thread's rows

  FA3_DEV void begin() { nothing[0] = nothing[1] = false; }
  template <class C>
  FA3_DEV void look(const C& c) {
    any = c.smem.missing.test_wait(0);
  }
  template <class C, class S>
  FA3_DEV void hide(const C& c, i32 kv_tile, S& s) {
    any = ptx::any(any);
    if (any) hide_keys(s, kCfg.tile.kv * kv_tile, [&](i32 key) { return is_there(c, key); });
  }
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
  FA3_DEV void begin() {}
  template <class C>
  FA3_DEV void look(const C&) {}
  template <class C, class S>
  FA3_DEV void hide(const C&, i32, S&) {}
  template <class C>
  FA3_DEV void finish(const C&) {}
  FA3_DEV void find_unseen(bool (&)[2]) const {}
};

}  // namespace fa3::sm90
