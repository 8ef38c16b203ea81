// SPDX-License-Identifier: BSD-3-Clause
// weights.h — P and dS of a tile from its S and dP, in registers, and dS into shared memory.
#pragma once

#include "device/hopper/operand.h"
#include "device/ptx/fence.h"
#include "device/ptx/grid.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/sm90/bwd/coarse_weights.h"
#include "device/sm90/bwd/gemms.h"
#include "device/sm90/bwd/mask_part.h"

namespace fa3::sm90 {

template <BwdConfig kCfg, class SmemOf = BwdSmem<kCfg>>
struct BwdWeights : BwdGemms<kCfg, SmemOf> {
  using Base = BwdGemms<kCfg, SmemOf>;
  using Base::args, Base::smem, Base::wg, Base::thread, Base::tile, Base::masked, Base::head;
  using Base::Base;
  using Base::coarse, Base::place, Base::column;
  using Base::kType, Base::kQueries, Base::kDs;
  using typename Base::Scores, typename Base::DsRing;

  // What lies from stats[at] on, of the thread's two queries of 8 (stats_place).
  using Two = ptx::Vec<float, 2>;
  FA3_DEV Two load_stats(u32 stage, int at, int of_8) const {
    const u32 row = static_cast<u32>(of_8 / 2 * 16 + of_8 % 2 * 2) + 2 * column();
    return ptx::ld_shared(reinterpret_cast<const Two*>(&smem.stats[stage][at] + row));
  }
  // What ALiBi adds to exponents of the thread's keys and queries of S's tile: slope · distance.
  struct Bias {
    float slope = 0, first = 0;  // negated; query 0 of the thread from its first key

    FA3_DEV float of(int j, int i) const {
      const float distance = first + static_cast<float>(8 * j + i % 2 - i / 2 * 8);
      return slope * ptx::abs(distance);
    }
  };
  FA3_DEV Bias bias(u32 stage) const {
    if constexpr (kCfg.functors) {
      const i32 query = kQueries * tile + static_cast<i32>(column());
      const auto* const placed = &smem.placed[wg][thread];
      return {ptx::ld_shared(&smem.stats[stage][kCfg.slope_at()]),
              static_cast<float>(query + ptx::ld_shared(placed)[0])};
    } else {
      return {};
    }
  }

  using MaskPart = BwdMaskPart<kCfg>;
  FA3_DEV MaskPlace mask_place() const {
    if constexpr (kCfg.mask_gradient) return place;
    i32 kv_tile = BwdCta<kCfg>::kv_tile(args);
    // A cluster may have a CTA without keys, which reads what the other does.
    if constexpr (kCfg.cluster() > 1) kv_tile = min(kv_tile, (args.kv_rows - 1) / kCfg.tile_kv());
    return {BwdCta<kCfg>::batch(), head, kCfg.tile_kv() * kv_tile};
  }
  FA3_DEV MaskPart mask_part(int j) const {
    return MaskPart::load(args, mask_place(), wg, thread, tile, j);
  }
  // LSE of the thread's two queries of 8, where S has no term of it.
  FA3_DEV Two load_lse(u32 stage, int of_8) const {
    return kCfg.softcap ? load_stats(stage, 0, of_8) : Two{};
  }
  // What is added to the exponent of element i of 8 queries, but −LSE.
  FA3_DEV float added_of(const Bias& of, const MaskPart& part, int j, int i) const {
    const float value = kCfg.adds_mask() ? part.value(i) : 0.f;
    return kCfg.functors ? value + of.of(j, i) : value;
  }

  // P in FP32. Stage: of Q; part_of(j): mask_part(j).
  template <class PartOf>
  FA3_DEV void make_p(u32 stage, Scores& s, const PartOf& part_of) const {
    const Bias added = bias(stage);
    FA3_UNROLL
    for (int j = 0; j < kQueries / 8; ++j) {
      const Two lse = load_lse(stage, j);
      [[maybe_unused]] const MaskPart part = part_of(j);
      FA3_UNROLL
      for (int i = 0; i < 4; ++i) {
        float& x = s[4 * j + i];
        x = exponent_of(x, added, part, lse, j, i);
        // P ≤ 1 also where the mask is large, as padding may have it, and LSE with it as coarse.
        if constexpr (kCfg.adds_mask()) x = -ptx::max_nan(-x, 0.f) * kLog2e;
        x = ptx::ex2(x);
        if (kCfg.has_mask() && !part.sees(i)) x = 0;
      }
      // Elements of 32 queries in flight at a time: there are no registers for more (P ≥ 0).
      if (kCfg.adds_mask() && j % 4 == 3 && j + 1 < kQueries / 8 && ptx::any(s[4 * j] < 0))
        ptx::nanosleep(0);
    }
    hide_pairs(stage, s);
  }
  // Of element i of 8 queries, whose S is x. With a softcap x becomes tanh.
  FA3_DEV float exponent_of(float& x, const Bias& added, const MaskPart& part, const Two& lse,
                            int j, int i) const {
    if constexpr (kCfg.softcap) x = ptx::tanh_approx(x * args.score_factor);
    if constexpr (kCfg.softcap || kCfg.functors || kCfg.adds_mask())
      return ptx::fma(x, args.scale_log2, added_of(added, part, j, i) - lse[i % 2]);
    return x * args.scale_log2;
  }
  // P of pairs that ids or the band hide: 0.
  FA3_DEV void hide_pairs(u32 stage, Scores& s) const {
    if constexpr (kCfg.functors) {
      const ptx::Vec<i32, 4> placed = ptx::ld_shared(&smem.placed[wg][thread]);
      FA3_UNROLL
      for (int j = 0; j < kQueries / 8; ++j) {
        const Two ids = load_stats(stage, kCfg.ids_at(), j);
        FA3_UNROLL
        for (int i = 0; i < 4; ++i)
          if (ptx::bits_as<i32>(ids[i % 2]) != placed[1 + i / 2]) s[4 * j + i] = 0;
      }
    }
    if (masked) {
      const ptx::Vec<i32, 4> seen = ptx::ld_shared(&smem.seen[wg][thread]);
      FA3_UNROLL
      for (int j = 0; j < kQueries / 8; ++j) {
        FA3_UNROLL
        for (int i = 0; i < 4; ++i) {
          const i32 query = kQueries * tile + 8 * j + i % 2 + static_cast<i32>(column());
          if (query < seen[i / 2 * 2] || query >= seen[i / 2 * 2 + 1]) s[4 * j + i] = 0;
        }
      }
    }
  }

  // P of S's tile; with kCoarse by another way where LSE of some of its rows is coarse, as `flag`
  // tells. part_of(j): mask_part(j).
  template <bool kCoarse, class PartOf>
  FA3_DEV void make_tile_p(float flag, u32 stage, Scores& s, const PartOf& part_of) {
    if constexpr (kCoarse) coarse = ptx::any(flag != 0);
    if (kCoarse && coarse)
      make_coarse_p(stage, s, part_of);
    else
      make_p(stage, s, part_of);
  }
  template <class PartOf>
  FA3_DEV void make_coarse_p(u32 stage, Scores& s, const PartOf& part_of) {
    make_coarse_weights(*this, stage, s, part_of);
    // Made again, so that it takes no register in between: there is none left.
    thread = ptx::shfl_idx(ptx::thread_index() % kWgThreads, static_cast<int>(ptx::lane_index()));
    hide_pairs(stage, s);
  }
  // Whether S's tile has such rows.
  template <bool kCoarse>
  FA3_DEV float coarse_flag(u32 stage) const {
    if constexpr (!kCoarse) return 0;
    if constexpr (kCfg.coarse_loop()) return ptx::ld_global(args.coarse.tiles + tile_of_all());
    return ptx::ld_shared(&smem.stats[stage][kCfg.coarse_at()]);
  }
  FA3_DEV const float* coarse_rows() const {
    return args.coarse.rows + 2 * kQueries * tile_of_all() + column();
  }
  // S's tile among those of all heads and sequences, which are never varlen beside a mask.
  FA3_DEV i64 tile_of_all() const {
    return args.tiles.first(mask_place().batch, mask_place().head, 0, kQueries) + tile;
  }

  // dS = P ∘ (dP − δ), of which `dp` has the difference. Of a pair that the mask has hidden it may
  // be anything.
  FA3_DEV void make_plain_ds(const Scores& p, Scores& dp) const {
    FA3_UNROLL
    for (int i = 0; i < kQueries / 2; ++i) dp[i] *= p[i];
    if (kCfg.functors || kCfg.has_mask() || masked) {
      FA3_UNROLL
      for (int i = 0; i < kQueries / 2; ++i)
        if (p[i] == 0) dp[i] = 0;
    }
  }
  // The same · (1 − tanh²), whose tanh is made again from P: kept, it would take as many registers.
  FA3_DEV void make_capped_ds(u32 stage, const Scores& p, Scores& dp) const {
    const Bias added = bias(stage);
    FA3_UNROLL
    for (int j = 0; j < kQueries / 8; ++j) {
      const Two lse = load_lse(stage, j);
      [[maybe_unused]] const MaskPart part = mask_part(j);
      FA3_UNROLL
      for (int i = 4 * j; i < 4 * j + 4; ++i) {
        const float y = added_of(added, part, j, i % 4) - lse[i % 2];
        const float log = kCfg.adds_mask() ? ptx::lg2(p[i]) * kLn2 : ptx::lg2(p[i]);
        const float t = (log - y) * args.unscale;
        float slope = ptx::fma(-t, t, 1.f);
        if (kCfg.adds_mask() && coarse) slope = slope_of(p[i]);
        const float ds = p[i] * dp[i] * slope;
        dp[i] = p[i] == 0 ? 0.f : ds;
      }
    }
  }
  FA3_DEV void make_ds(u32 stage, const Scores& p, Scores& dp) const {
    if constexpr (kCfg.softcap)
      make_capped_ds(stage, p, dp);
    else
      make_plain_ds(p, dp);
  }
  // This consumer's keys of a slot; a fence and a barrier hand them on.
  FA3_DEV void put_ds(const DsRing& ring, const Scores& ds) {
    static_assert(!kCfg.ds_turned() || kDs.panel_columns() == kWgRows, "each consumer's keys");
    if constexpr (kCfg.ds_turned())
      store_turned16<kType>(smem.ds[ring.stage] + wg * static_cast<u32>(kDs.panel_bytes()), thread,
                            ds);
    else
      store_operand16<kType, kDs.swizzle()>(smem.ds[ring.stage] + this->template own_bytes<kDs>(),
                                            ds, kDs.rows);
  }
};

}  // namespace fa3::sm90
