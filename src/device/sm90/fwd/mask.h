// SPDX-License-Identifier: BSD-3-Clause
// mask.h — which keys a consumer's rows see: those of a band, those that a functor of single keys
// allows as well (warp/element.h), or those that attn_mask shows. Each way is a struct with its own
// state and these functions; c is the consumer:
//   begin(c, work)                  before a Q tile's first KV tile; then, when the functors have
//   begin_tiles(c, work)            read what they need of the rows
//   for_tiles<kTail>(c, kv_tile, f) f(kv_tile, masked) for the KV tiles from kv_tile down; kTail:
//                                   the first may hold keys beyond the sequence, even unmasked
//   prepare(c, kv_tile, masked)     work that takes long, before S is waited for
//   to_units(args, s)               S in the units in which functors and attn_mask add to it
//   apply(c, kv_tile, s, masked)    hides keys of S
//   find_unseen(nothing)            sets it for rows that have seen no key
#pragma once

#include "device/attn/kinds.h"
#include "device/hopper/ring.h"
#include "device/ptx/fence.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/common/work.h"
#include "device/sm90/fwd/config.h"
#include "device/sm90/fwd/mask_tile.h"
#include "device/warp/element.h"
#include "device/warp/mask_tensor.h"
#include "device/warp/score.h"

namespace fa3::sm90 {

// Whether the mask is applied to a KV tile, as a type.
template <bool kMasks>
struct Masked {};

// Which of a thread's two rows has seen a key: bit h of row h.
struct SeenRows {
  u32 bits;

  FA3_DEV void find_unseen(bool (&nothing)[2]) const {
    u32 by_quad = bits;
    by_quad |= ptx::shfl_xor(by_quad, 1);
    by_quad |= ptx::shfl_xor(by_quad, 2);
    FA3_UNROLL
    for (u32 h = 0; h < 2; ++h) nothing[h] = nothing[h] || (by_quad >> h & 1) == 0;
  }
};

// A functor of single keys, and what it reads of the thread's two rows.
template <class Functor>
struct KeyFunctor {
  typename Functor::Row rows[2];

  template <class C>
  FA3_DEV void begin(const C& c, const FwdWork& work, int h) {
    rows[h] = Functor::row(c.args.elements, place_of(c.args, work), c.row_of(work) + 8 * h);
  }
  // Whether it or others hide keys of a tile.
  FA3_DEV static bool hides(bool) { return true; }
  // Of the keys that `keys` shows; it has hidden the others.
  template <class C, class S, class Keys>
  FA3_DEV void hide(const C& c, i32 kv_tile, S& s, const Keys& keys, SeenRows& seen) const {
    const auto shown = [&](int h, int column) { return keys.sees(h, column); };
    const ElementPlace place = place_of(c.args, c.smem.work[c.tile.work_slot].read());
    hide_keys<Functor>(s, rows, shown, c.args.elements, place, kv_tile, seen.bits);
  }
};
template <>
struct KeyFunctor<EveryKey> {
  template <class C>
  FA3_DEV void begin(const C&, const FwdWork&, int) {}
  FA3_DEV static bool hides(bool others) { return others; }
  template <class C, class S, class Keys>
  FA3_DEV void hide(const C&, i32, S&, const Keys& keys, SeenRows& seen) const {
    seen.bits |= (keys.sees_any(0) ? 1u : 0u) | (keys.sees_any(1) ? 2u : 0u);
  }
};

// The band alone.
template <FwdConfig kCfg, class Functor = EveryKey>
struct BandOnly {
  static constexpr bool kLeft = has_left_edge(kCfg.mask.kind);

  BandMask band;
  KeyFunctor<Functor> functor;

  template <class C>
  FA3_DEV void begin(const C& c, const FwdWork& work) {
    band = c.band_of(work);
  }
  template <class C>
  FA3_DEV void begin_tiles(const C&, const FwdWork&) {}
  template <bool kTail, class C, class F>
  FA3_DEV void for_tiles(C& c, i32 kv_tile, const F& f) {
    constexpr bool kMayMiss = kCfg.load.cached();  // keys of a tile (missing.h)
    for_edges<kCfg.mask.kind != MaskKind::kFull || kTail || kMayMiss, kLeft>(c, kv_tile, f);
  }
  template <class C, class M>
  FA3_DEV void prepare(C&, i32, M) {}
  template <class Args, class S>
  FA3_DEV void to_units(const Args&, S&) const {}
  template <class C, class S>
  FA3_DEV void apply(C&, i32 kv_tile, S& s, Masked<true>) {
    band.template apply<kLeft>(s, kv_tile);
  }
  template <class C, class S>
  FA3_DEV void apply(C&, i32, S&, Masked<false>) {}
  FA3_DEV void find_unseen(bool (&)[2]) const {}

 protected:
  // At the mask's right edge, if it has one, unmasked, and at its left edge, if it has one.
  template <bool kRight, bool kLeft, class C, class F>
  FA3_DEV static void for_edges(C& c, i32& kv_tile, const F& f) {
    if constexpr (kRight) c.pv.template tiles_down<true>(c, kv_tile, c.visit.own.unmasked_end, f);
    c.pv.template tiles_down<false>(c, kv_tile, c.visit.own.unmasked_first, f);
    if constexpr (kLeft) c.pv.template tiles_down<true>(c, kv_tile, c.visit.own.first, f);
  }
};

// A tile's keys in the band.
struct BandKeys {
  const BandMask& band;
  i32 first_key;

  FA3_DEV bool sees(int h, int column) const { return band.sees(h, column, first_key); }
};

// The band and a functor, which has edges of its own.
template <FwdConfig kCfg, class Functor>
struct FunctorMask : BandOnly<kCfg, Functor> {
  using Band = BandOnly<kCfg, Functor>;
  SeenRows seen;

  template <class C>
  FA3_DEV void begin(const C& c, const FwdWork& work) {
    Band::begin(c, work);
    seen.bits = 0;
  }
  template <bool kTail, class C, class F>
  FA3_DEV void for_tiles(C& c, i32 kv_tile, const F& f) {
    Band::template for_edges<true, true>(c, kv_tile, f);
  }
  template <class C, class S>
  FA3_DEV void apply(C& c, i32 kv_tile, S& s, Masked<true> masked) {
    Band::apply(c, kv_tile, s, masked);
    this->functor.hide(c, kv_tile, s, BandKeys{this->band, kCfg.tile.kv * kv_tile}, seen);
  }
  template <class C, class S>
  FA3_DEV void apply(C&, i32, S&, Masked<false>) {
    seen.bits = 3;
  }
  FA3_DEV void find_unseen(bool (&nothing)[2]) const { seen.find_unseen(nothing); }
};

// attn_mask of bool, with the band and a functor, if there is one.
template <FwdConfig kCfg, class Functor>
struct TensorMask : BandOnly<kCfg, Functor> {
  using Band = BandOnly<kCfg, Functor>;
  SeenRows seen;
  ShownTiles<true> tiles;
  ShownKeys<kCfg.tile.kv> keys;  // of the tile

  template <class C>
  FA3_DEV void begin(const C& c, const FwdWork& work) {
    Band::begin(c, work);
    seen.bits = 0;
  }
  template <class C>
  FA3_DEV void begin_tiles(const C& c, const FwdWork& work) {
    tiles.begin(c.args.mask, work.batch, work.head, work.tile, c.visit.own.end - 1);
  }
  // Of the tiles that attn_mask shows.
  template <bool kTail, class C, class F>
  FA3_DEV void for_tiles(C& c, i32 kv_tile, const F& f) {
    const TileRange& own = c.visit.own;
    FA3_NO_UNROLL
    while ((kv_tile = tiles.before(kv_tile + 1, own.first)) >= own.first) {
      const bool inside = kv_tile >= own.unmasked_first && kv_tile < own.unmasked_end;
      const bool changes = tiles.changes(kv_tile);
      if (inside && !changes) {
        f(kv_tile, Masked<false>{});
      } else {
        f(kv_tile, Masked<true>{});
      }
      --kv_tile;
    }
  }
  template <class C>
  FA3_DEV void prepare(C& c, i32 kv_tile, Masked<true>) {
    load_keys(c, kv_tile);
  }
  template <class C>
  FA3_DEV void prepare(C&, i32, Masked<false>) {}
  template <class C, class S>
  FA3_DEV void apply(C& c, i32 kv_tile, S& s, Masked<true>) {
    keys.apply(s);
    this->functor.hide(c, kv_tile, s, keys, seen);
  }
  template <class C, class S>
  FA3_DEV void apply(C&, i32, S&, Masked<false>) {
    seen.bits = 3;
  }
  FA3_DEV void find_unseen(bool (&nothing)[2]) const { seen.find_unseen(nothing); }

 protected:
  // Bits of the tile, into which the band is put.
  template <class C>
  FA3_DEV void load_keys(const C& c, i32 kv_tile) {
    const FwdWork work = c.smem.work[c.tile.work_slot].read();
    keys.load(c.args.mask, work.batch, work.head, c.row_of(work), max(work.q_used - 1, 0), kv_tile,
              c.band_of(work));
  }
};

// attn_mask that is added to scores.
template <FwdConfig kCfg, class Functor>
struct AddedMask : TensorMask<kCfg, Functor> {
  using Bits = TensorMask<kCfg, Functor>;
  using Element = MaskElement<kCfg.mask.tensor, kCfg.types.qk == MmaType::kBf16>;

  bool hides;  // keys of this KV tile

  template <class C>
  FA3_DEV void prepare(C& c, i32 kv_tile, Masked<true>) {
    const bool adds = this->tiles.adds(kv_tile);
    // Of the mask first: its reduction has to stand behind no condition (ShownTiles).
    const bool by_mask = this->tiles.hides(kv_tile);
    const TileRange& own = c.visit.own;
    hides =
        this->functor.hides(by_mask || kv_tile < own.unmasked_first || kv_tile >= own.unmasked_end);
    if (hides && !adds) this->load_keys(c, kv_tile);
  }
  template <class C>
  FA3_DEV void prepare(C&, i32, Masked<false>) {}
  // Natural ones, as it is in: behind a softcap S is tanh.
  template <class Args, class S>
  FA3_DEV void to_units(const Args& args, S& s) const {
    if constexpr (kCfg.scores.kind == ScoreKind::kSoftcap) {
      FA3_UNROLL
      for (int i = 0; i < kCfg.tile.kv / 2; ++i) s[i] *= args.mask.cap;
    }
  }
  template <class C, class S>
  FA3_DEV void apply(C& c, i32 kv_tile, S& s, Masked<true> masked) {
    if (this->tiles.adds(kv_tile)) {
      add(c, kv_tile, s);
      // Not before: there are no registers for both.
      if (hides) this->load_keys(c, kv_tile);
    }
    if (!hides) {
      this->seen.bits = 3;
      return;
    }
    Bits::apply(c, kv_tile, s, masked);
  }
  template <class C, class S>
  FA3_DEV void apply(C& c, i32 kv_tile, S& s, Masked<false> unmasked) {
    Bits::apply(c, kv_tile, s, unmasked);
  }

 private:
  // Also to keys that are not seen.
  template <class C, class S>
  FA3_DEV void add(C& c, i32 kv_tile, S& s) {
    if constexpr (kCfg.mask.stages > 0) {
      if (c.args.mask.by_tma) return add_tile(c, s);
    }
    const FwdWork work = c.smem.work[c.tile.work_slot].read();
    add_mask_elements<Element>(s, c.args.mask, work.batch, work.head, c.row_of(work),
                               max(work.q_used - 1, 0), kv_tile);
  }
  template <class C, class S>
  FA3_DEV void add_tile(C& c, S& s) {
    const u32 at = c.added.stage * kCfg.tile.consumer_wgs + c.wg;
    c.smem.mask_full[at].wait(c.added.phase);
    add_mask_tile<Element, kCfg.mask_tile()>(s, c.smem.side[at], ptx::thread_index() % kWgThreads);
    ptx::fence_proxy_async_shared();  // before TMA writes there again
    ptx::warp_sync();                 // all lanes have read
    c.smem.mask_empty[at].arrive_if(ptx::lane_index() == 0);
    c.added.advance();
  }
};

template <FwdConfig kCfg, class Functor, bool kTensor = kCfg.mask.has_tensor(),
          bool kAdds = kCfg.mask.adds_tensor()>
struct MaskOf {
  using Type = FunctorMask<kCfg, Functor>;
};
template <FwdConfig kCfg>
struct MaskOf<kCfg, EveryKey, false, false> {
  using Type = BandOnly<kCfg>;
};
template <FwdConfig kCfg, class Functor>
struct MaskOf<kCfg, Functor, true, false> {
  using Type = TensorMask<kCfg, Functor>;
};
template <FwdConfig kCfg, class Functor>
struct MaskOf<kCfg, Functor, true, true> {
  using Type = AddedMask<kCfg, Functor>;
};

}  // namespace fa3::sm90
