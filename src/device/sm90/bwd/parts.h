// SPDX-License-Identifier: BSD-3-Clause
// parts.h — what the backward's consumers share: which queries see their keys, operands of GEMMs, P
// and dS from scores, gradients into tensors.
#pragma once

#include "device/hopper/column_term.h"
#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/hopper/ring.h"
#include "device/hopper/tile_layout.h"
#include "device/ptx/fence.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/reduce.h"
#include "device/sm90/bwd/args.h"
#include "device/sm90/bwd/coarse_weights.h"
#include "device/sm90/bwd/fixed.h"
#include "device/sm90/bwd/mask_part.h"
#include "device/sm90/bwd/smem.h"
#include "device/sm90/bwd/store_rows.h"
#include "device/sm90/bwd/tensor.h"
#include "device/sm90/bwd/visits.h"
#include "device/sm90/bwd/work.h"
#include "device/warp/fragment.h"

namespace fa3::sm90 {

// The keys of a tile: of which sequence, and which rows of it count.
struct KeysOfTile {
  i32 q_used, kv_used, first_row;
  i32 key;  // the tile's first
  i32 batch;
};
template <BwdConfig kCfg, class SmemOf = BwdSmem<kCfg>>
struct BwdParts {
  static constexpr MmaType kType = kCfg.dtype;
  static constexpr int kQueries = kCfg.tile_q;
  static constexpr bool kSoftcap = kCfg.softcap;
  static constexpr TileLayout kK = kCfg.k_tile(), kV = kCfg.v_tile(), kQ = kCfg.q_tile(),
                              kDout = kCfg.dout_tile(), kDs = kCfg.ds_tile();
  using Smem = SmemOf;
  using Scores = ptx::Acc<kQueries>;
  using Fragment = ptx::AFrag[kQueries / 16];
  static constexpr int kDqColumns = kCfg.dq_columns();
  static constexpr int kPieceFours = kCfg.dq_piece_columns() / 8;  // of a thread's registers
  using DqAcc = ptx::Acc<kDqColumns>;
  using QRing = Ring<kCfg.q_stages()>;
  using DoutRing = Ring<kCfg.stages>;
  using DsRing = Ring<kCfg.ds_slots()>;

  Smem& smem;
  const BwdArgs& args;
  u32 base;  // shared memory's first byte
  u32 wg;    // among the consumers
  u32 thread;
  i32 tile;                 // S's
  bool masked;              // whether it has pairs that the mask hides
  i32 head;                 // attn_mask only: whose tile it is
  Ring<kBwdSteps> steps{};  // lists() only
  bool last;                // likewise: whether no tile is behind S's
  bool coarse = false;      // adds_mask() only: whether LSE of some of S's rows is coarse
  MaskPlace place;          // mask_gradient only; else derived from the CTA's index on demand

  FA3_DEV BwdParts(Smem& smem, const BwdArgs& args, u32 wg)
      : smem(smem),
        args(args),
        base(ptx::smem_address(&smem)),
        wg(wg),
        thread(ptx::thread_index() % kWgThreads) {}

  // Passes `thread` through a shuffle, so that the compiler keeps nothing derived from it in
  // registers across the loop.
  FA3_DEV void thread_anew() {
    thread = ptx::shfl_idx(thread, static_cast<int>(ptx::lane_index()));
  }
  // The first of the thread's two keys in the tile; the other is 8 further on.
  FA3_DEV u32 own_row() const { return kCfg.own_keys() * wg + fragment_row(thread); }
  FA3_DEV u32 column() const { return fragment_column(thread); }  // likewise of queries

  FA3_DEV bool has_tiles(const BwdWork& work) const {
    if (work.range.empty()) return false;
    if constexpr (kCfg.lists()) {
      smem.steps_full[0].wait(0);
      return !BwdStep::read(smem.steps[0]).is_none();
    }
    return true;
  }

  // Before anything else of a tile that has Q tiles. Returns their number, over all heads; with
  // lists() there may be fewer, which begin_tile() tells.
  FA3_DEV i32 start(const BwdWork& work) {
    see_keys({work.q.used, work.kv.used, first_row(args.kv_axis, work.kv), work.key, work.batch});
    // Through reductions, so that the compiler sees one value per warp; and in shared memory, since
    // over the loop it would take registers that are not left.
    const auto one = [](i32 x) { return static_cast<i32>(ptx::redux_or(static_cast<u32>(x))); };
    const ptx::Vec<i32, 4> range = {{one(work.range.first), one(work.range.unmasked_first),
                                     one(work.range.unmasked_end), one(work.range.end)}};
    if (ptx::lane_index() == 0) ptx::st_shared(&own_range(), range);
    ptx::warp_sync();  // sim:spare(range)
    if constexpr (!kCfg.lists()) visit(work.first_q_tile<kCfg>(), range);
    return (range[3] - range[0]) * args.group_size;
  }
  FA3_DEV void see_keys(const KeysOfTile& of) {
    ptx::Vec<i32, 4> seen;
    FA3_UNROLL
    for (u32 h = 0; h < 2; ++h) {
      const i32 key = of.key + static_cast<i32>(own_row() + 8 * h);
      const Range<i32> of_key = rows_of_key(args.band, of.q_used, of.kv_used, key);
      seen[2 * h] = of_key.lo, seen[2 * h + 1] = of_key.hi;
    }
    if (wg < kCfg.mask_makers()) {
      ptx::st_shared(&smem.seen[wg][thread], seen);
      if constexpr (kCfg.functors) place_keys(of);
    }
  }
  FA3_DEV void place_keys(const KeysOfTile& of) {
    const i32 key = of.key + static_cast<i32>(own_row());
    ptx::Vec<i32, 4> placed{};
    placed[0] = of.kv_used - of.q_used - key;
    FA3_UNROLL
    for (int h = 0; h < 2; ++h) {
      if (args.ids_kv == nullptr || key + 8 * h >= of.kv_used) continue;
      placed[1 + h] =
          ptx::ld_global_nc(args.ids_kv + of.batch * args.id_kv_batch + of.first_row + key + 8 * h);
    }
    ptx::st_shared(&smem.placed[wg][thread], placed);
  }
  FA3_DEV void visit(i32 next, const ptx::Vec<i32, 4>& of) {
    tile = next;
    masked = tile < of[1] || tile >= of[2];
  }
  // lists() only: S's tile becomes the next one, whose Q is there.
  FA3_DEV void begin_tile() {
    if constexpr (kCfg.lists()) {
      const BwdStep step = BwdStep::read(smem.steps[steps.stage]);
      const u32 word = ptx::redux_or(static_cast<u32>(step.word()[0]));
      last = word % 2 != 0;
      if constexpr (kCfg.has_mask())
        head = static_cast<i32>(ptx::redux_or(static_cast<u32>(step.head)));
      visit(static_cast<i32>(word / 2), load_range());
      steps.advance();
    }
  }
  FA3_DEV void next_tile() {
    if constexpr (!kCfg.lists()) {
      const ptx::Vec<i32, 4> of = load_range();
      visit(tile + 1 == of[3] ? of[0] : tile + 1, of);
    }
  }
  FA3_DEV ptx::Vec<i32, 4>& own_range() const {
    return smem.ranges[(kWgThreads * wg + thread) / 32];
  }
  FA3_DEV ptx::Vec<i32, 4> load_range() const { return ptx::ld_shared(&own_range()); }

  // ---- Operands ---------------------------------------------------------------------------------

  // Of a tile in shared memory; `skip`: bytes from its first row on.
  template <TileLayout kTile, class Member, class Cursor>
  FA3_DEV KMajorOperand<kTile> rows(const Member& member, const Cursor& ring, u32 skip = 0) const {
    return KMajorOperand<kTile>::at(at(member) + skip +
                                    ring.stage * static_cast<u32>(kTile.bytes()));
  }
  template <TileLayout kTile, class Member, class Cursor>
  FA3_DEV MnMajorOperand<kTile> columns(const Member& member, const Cursor& ring,
                                        u32 skip = 0) const {
    return MnMajorOperand<kTile>::at(at(member) + skip +
                                     ring.stage * static_cast<u32>(kTile.bytes()));
  }
  template <class Member>
  FA3_DEV u32 at(const Member& member) const {
    return base + static_cast<u32>(reinterpret_cast<const u8*>(&member) -
                                   reinterpret_cast<const u8*>(&smem));
  }
  // To the rows of this consumer's keys.
  template <TileLayout kTile>
  FA3_DEV u32 own_bytes() const {
    return kCfg.own_keys() * wg * static_cast<u32>(kTile.panel_width());
  }

  // S − LSE / scale, so that P is of its exponential; with a softcap S.
  FA3_DEV void issue_s(const QRing& ring, const ptx::AFrag& ones, Scores& s) const {
    gemm_ss<kType, kCfg.head_dim_qk / 16>(s, rows<kK>(smem.k, Ring<1>{}, own_bytes<kK>()),
                                          rows<kQ>(smem.q, ring), kOverwrite,
                                          [&] { add_lse(ring.stage, ones, s); });
  }
  FA3_DEV void add_lse(u32 stage, const ptx::AFrag& ones, Scores& s) const {
    if constexpr (!kCfg.softcap) add_terms(s, ones, term_at(smem.stats[0], stage, kCfg.delta_at()));
  }
  // dP − δ.
  FA3_DEV void issue_dp(const DoutRing& ring, const ptx::AFrag& ones, Scores& dp) const {
    gemm_ss<kType, kCfg.head_dim_v / 16>(  // sim:spare(fenced)
        dp, rows<kV>(smem.v, Ring<1>{}, own_bytes<kV>()), rows<kDout>(smem.dout, ring), kOverwrite,
        [&] { add_terms(dp, ones, term_at(smem.delta[0], ring.stage, kCfg.term_floats())); });
  }
  template <class Member>
  FA3_DEV u32 term_at(const Member& first, u32 stage, int floats) const {
    return at(first) + stage * 4 * static_cast<u32>(floats);
  }
  // All keys' dS is there.
  FA3_DEV void issue_dq(const DsRing& ring, DqAcc& dq) {
    const auto k = columns<kK>(smem.k, Ring<1>{}, to_column<kK>(kDqColumns * dq_part()));
    if constexpr (kCfg.ds_turned()) {
      constexpr u32 kOwn = kCfg.dq_by_rows() ? static_cast<u32>(kWgRows * kDs.panel_width()) : 0;
      gemm_ss<kType, kCfg.tile_kv() / 16>(dq, rows<kDs>(smem.ds, ring, kOwn * wg), k, kOverwrite);
    } else {
      gemm_ss<kType, kCfg.tile_kv() / 16>(dq, columns<kDs>(smem.ds, ring), k, kOverwrite);
    }
  }
  // To a column of the first row.
  template <TileLayout kTile>
  FA3_DEV static u32 to_column(u32 column) {
    constexpr u32 kPanel = static_cast<u32>(kTile.panel_columns());
    return column / kPanel * static_cast<u32>(kTile.panel_bytes()) + column % kPanel * 2;
  }
  // Which of dQ's columns.
  FA3_DEV u32 dq_part() const {
    if constexpr (kCfg.dq_by_rows()) return 0;
    return kCfg.split() ? BwdCta<kCfg>::rank() : wg;
  }

  // ---- P and dS ---------------------------------------------------------------------------------

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

  // P of S's tile; by another way where a mask is added and LSE of some of its rows is coarse, as
  // `flag` tells. part_of(j): mask_part(j).
  template <class PartOf>
  FA3_DEV void make_tile_p(float flag, u32 stage, Scores& s, const PartOf& part_of) {
    if constexpr (kCfg.adds_mask()) coarse = ptx::any(flag != 0);
    if (kCfg.adds_mask() && coarse)
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
  FA3_DEV float coarse_flag(u32 stage) const {
    if constexpr (!kCfg.adds_mask()) return 0;
    return ptx::ld_shared(&smem.stats[stage][kCfg.coarse_at()]);
  }
  FA3_DEV const float* coarse_rows() const {
    const MaskPlace of = mask_place();
    const i64 at = args.tiles.first(of.batch, of.head, 0, kQueries) + tile;  // never varlen
    return args.coarse.rows + 2 * kQueries * at + column();
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
      store_operand16<kType, kDs.swizzle()>(smem.ds[ring.stage] + own_bytes<kDs>(), ds, kDs.rows);
  }

  // ---- dQ's sums --------------------------------------------------------------------------------

  // Of the thread's two rows of dQ.
  FA3_DEV Two load_scales(const QRing& ring) const {
    if constexpr (!kCfg.deterministic) return {};
    const u32 row = (kCfg.dq_by_rows() ? kWgRows * wg : 0) + fragment_row(thread);
    const u32 slot = ring.stage + ring.phase * static_cast<u32>(kCfg.q_stages());
    const float* const at = &smem.scales[slot][stats_place(static_cast<i32>(row))];
    return {{ptx::ld_shared(at), ptx::ld_shared(at + 2)}};
  }
  // To dQ writer `w` its piece of that turn: registers 4g … 4g + 3 of all threads lie side by side.
  // Deterministic, words of fixed point; returns their bits, combined by OR, for release_dq().
  FA3_DEV u32 put_dq(const Two& scales, const DqAcc& dq, u32 w, int turn = 0) const {
    const int piece = piece_of(w, turn);
    const float factors[2] = {fixed_factor(scales[0]), fixed_factor(scales[1])};
    u32 bits = 0;
    FA3_UNROLL
    for (int g = 0; g < kPieceFours; ++g) {
      ptx::Vec<u32, 4> words;
      FA3_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float x = dq[4 * (kPieceFours * piece + g) + i];
        words[i] = ptx::bits_as<u32>(kCfg.deterministic ? to_fixed(x, factors[i / 2]) : x);
        bits |= words[i];
      }
      ptx::st_shared(own_dq(w) + kWgThreads * g, words);
    }
    return bits;
  }
  // Again, where some did not fit. What is not finite becomes bits beside the sums, and adds 0.
  FA3_DEV void put_large_dq(u32 w, int piece) const {
    const int first = kPieceFours * piece +
                      kDqColumns / 8 * static_cast<int>(kCfg.split() ? BwdCta<kCfg>::rank() : wg);
    FA3_NO_UNROLL
    for (int g = 0; g < kPieceFours; ++g) {
      ptx::Vec<u32, 4> words = ptx::ld_shared(own_dq(w) + kWgThreads * g);
      float not_finite = 0;
      FA3_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float x = ptx::bits_as<float>(words[i]);
        not_finite += x - x;
      }
      if (not_finite != 0) flag_non_finite(w, DqFlag::of<kCfg>(first + g, thread), words);
      FA3_UNROLL
      for (int i = 0; i < 4; ++i) words[i] = word_of_fixed(ptx::bits_as<float>(words[i]));
      ptx::st_shared(own_dq(w) + kWgThreads * g, words);
    }
  }
  FA3_DEV void flag_non_finite(u32 w, const DqFlag& flag, ptx::Vec<u32, 4>& words) const {
    u32* const flags =
        args.dq_flag + ptx::ld_shared(&smem.dq_tile[w]) * kCfg.dq_flags() + flag.word;
    FA3_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float x = ptx::bits_as<float>(words[i]);
      if (x - x == 0) continue;
      if (!(x < 0)) ptx::red_or_b32(flags, 1u << flag.bit << i);
      if (!(x > 0)) ptx::red_or_b32(flags + kWgThreads, 1u << flag.bit << i);
      words[i] = ptx::bits_as<u32>(kFixedZero);
    }
  }
  FA3_DEV static int piece_of(u32 w, int turn) {
    return kCfg.split() ? static_cast<int>(w) + kCfg.consumer_wgs * turn : 0;
  }
  FA3_DEV ptx::Vec<u32, 4>* own_dq(u32 w) const {
    return reinterpret_cast<ptx::Vec<u32, 4>*>(smem.dq[w]) + thread;
  }
  // Puts again what did not fit: here and not in put_dq(), so that a GEMM can be issued between.
  FA3_DEV void release_dq(u32 bits, u32 w, int turn = 0) const {
    if (kCfg.deterministic && ptx::any(!fixed_fits(bits))) put_large_dq(w, piece_of(w, turn));
    ptx::fence_proxy_async_shared();
    dq_full(w).arrive();
  }

  // ---- Gradients into tensors -------------------------------------------------------------------

  // store(work) for the CTA's tile, and again for rows of no sequence, which may be more than the
  // grid has tiles. They leave through this consumer's own rows of V, which nobody else reads;
  // split, dK through K, whose last reader is dK's consumer, since dS was made of the last S.
  template <class Store>
  FA3_DEV void store_tiles(const Store& store) const {
    // Read again: kept over the loop, it would take registers.
    BwdWork work = BwdWork::of_cta<kCfg>(args);
    const i32 step = kCfg.tile_kv() * BwdCta<kCfg>::kv_tiles(args);
    FA3_NO_UNROLL
    do {
      store(work);
      work.key += step;
    } while (work.batch == args.batch && work.key < work.kv.rows);
  }
  template <TileLayout kTile, int N>
  FA3_DEV void store_rows(const BwdTensor& to, const BwdWork& work, const ptx::Acc<N>& acc,
                          i32 columns, u8* tile) const {
    sm90::store_rows<kCfg, kTile>({args, work, wg, thread}, to, acc, columns, tile);
  }
};

}  // namespace fa3::sm90
