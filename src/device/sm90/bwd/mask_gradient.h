// SPDX-License-Identifier: BSD-3-Clause
// mask_gradient.h — dattn_mask = Σ P ∘ (dP − δ): which steps a tile of it is the sum of, and what
// the producer and the consumers do in each.
#pragma once

#include "device/ptx/bulk.h"
#include "device/sm90/bwd/parts.h"
#include "device/sm90/common/tile_load.h"
#include "device/warp/transpose.h"

namespace fa3::sm90 {

// Of all consumers: their parts of sums over keys are there, or read.
inline constexpr u32 kSumsBar = 1;

// Tiles of scores of the same keys, parts() of them, whose dS is added to a tile of dattn_mask.
struct GradientStep {
  i32 batch = 0, head = 0;
  i32 key = 0, q_tile = 0;      // the first key; the first tile of queries is parts() · q_tile
  i32 q_used = 0, kv_used = 0;  // rows of the sequence that count
  i32 kv_first = 0;             // its first row of keys
  u32 flags = 0;

  // The band or a sequence's end hides some pairs; there is nothing to add; dattn_mask's tile is
  // complete; there is no step. kCoarse and the bits above it: LSE of rows of each tile is coarse.
  static constexpr u32 kMasked = 1, kEmpty = 2, kLast = 4, kEnd = 8, kCoarse = 16;
  FA3_DEV bool is(u32 flag) const { return (flags & flag) != 0; }
};

template <BwdConfig kCfg>
struct MaskGradientSmem {
  static constexpr int kStages = kCfg.stages, kWarps = kCfg.consumer_wgs * kWgThreads / 32;
  // K or V; behind it Q or dO.
  alignas(1024) u8 pair[kStages][kCfg.pair_bytes()];
  alignas(16) ptx::Vec<i32, 4> step[kStages][2];  // GradientStep, beside K and Q
  // Of each tile of queries what comes with Q or, beside V and dO, δ.
  alignas(128) float stats[kCfg.parts() * kStages][kCfg.delta_at()];
  // As in BwdSmem.
  alignas(16) ptx::Vec<i32, 4> seen[kCfg.mask_makers()][kWgThreads];
  alignas(16) ptx::Vec<i32, 4> placed[kCfg.functors ? kCfg.mask_makers() : 1]
                                     [kCfg.functors ? kWgThreads : 1];
  float sums[kWarps][kCfg.parts() * kCfg.tile_q];  // over the keys of each warp
  Barrier full[kStages], empty[kStages];
  FA3_NAMED(pair, step, stats, seen, placed, sums, full, empty)

  FA3_DEV void init_barriers() {
    for (int s = 0; s < kStages; ++s) full[s].init(2), empty[s].init(kWarps);
  }
};

// What a tile of dattn_mask is the sum of, in tiles of scores.
struct GradientTile {
  Range<i32> batches, heads, q_tiles, kv_tiles;

  FA3_DEV static i32 count(const MaskGradientArgs& args) {
    return args.batches.own * args.heads.own * args.q_tiles.own * args.kv_tiles.own;
  }
  FA3_DEV static GradientTile of(const MaskGradientArgs& args, i32 index) {
    const auto next = [&index](const GradientExtent& extent) {
      const i32 i = index % extent.own;
      index /= extent.own;
      return extent.own == 1 ? Range<i32>{0, extent.all} : Range<i32>{i, i + 1};
    };
    GradientTile tile;
    tile.kv_tiles = next(args.kv_tiles);
    tile.q_tiles = next(args.q_tiles);
    tile.heads = next(args.heads);
    tile.batches = next(args.batches);
    return tile;
  }
};

// One thread. Steps of each tile of dattn_mask one after another: K and Q with its rows' LSE, then
// V and dO with their δ.
template <BwdConfig kCfg>
struct GradientProducer {
  static constexpr i32 kParts = kCfg.parts();

  MaskGradientSmem<kCfg>& smem;
  const MaskGradientArgs& args;
  Ring<kCfg.stages> ring = Ring<kCfg.stages>::producer();

  FA3_DEV void run() {
    const i32 count = GradientTile::count(args);
    FA3_NO_UNROLL
    for (i32 i = static_cast<i32>(ptx::block_index_x()); i < count;
         i += static_cast<i32>(ptx::grid_dim_x()))
      produce(GradientTile::of(args, i));
    GradientStep end;
    end.flags = GradientStep::kEnd;
    hand_over(end);
  }

 private:
  // A step is handed over once it is known whether there is another one.
  FA3_DEV void produce(const GradientTile& tile) {
    const BwdArgs& main = args.main;
    GradientStep last;
    last.batch = tile.batches.lo, last.head = tile.heads.lo;
    last.key = kCfg.tile_kv() * tile.kv_tiles.lo, last.q_tile = tile.q_tiles.lo;
    last.flags = GradientStep::kEmpty;
    SequenceRows last_q{}, last_kv{};
    FA3_NO_UNROLL
    for (i32 b = tile.batches.lo; b < tile.batches.hi; ++b) {
      const SequenceRows q = rows_of<kCfg.ragged>(main.q_axis, main.batch, b);
      const SequenceRows kv = rows_of<kCfg.ragged>(main.kv_axis, main.batch, b);
      FA3_NO_UNROLL
      for (i32 kv_tile = tile.kv_tiles.lo; kv_tile < tile.kv_tiles.hi; ++kv_tile) {
        const TileRange range = q_tile_range(main.band, q.used, kv.used, kv_tile * kCfg.tile_kv(),
                                             kCfg.tile_kv(), kParts * kCfg.tile_q);
        FA3_NO_UNROLL
        for (i32 head = tile.heads.lo; head < tile.heads.hi; ++head) {
          FA3_NO_UNROLL
          for (i32 q_tile = max(tile.q_tiles.lo, range.first);
               q_tile < min(tile.q_tiles.hi, range.end); ++q_tile) {
            if (!last.is(GradientStep::kEmpty)) load(last, last_q, last_kv);
            const bool masked = q_tile < range.unmasked_first || q_tile >= range.unmasked_end;
            last = {
                b,      head,    kv_tile * kCfg.tile_kv(),    q_tile,
                q.used, kv.used, first_row(main.kv_axis, kv), masked ? GradientStep::kMasked : 0};
            if constexpr (kCfg.adds_mask()) last.flags |= coarse_flags(last, q);
            last_q = q, last_kv = kv;
          }
        }
      }
    }
    last.flags |= GradientStep::kLast;
    load(last, last_q, last_kv);
  }

  FA3_DEV i32 last_q_tile() const { return (args.main.q_axis.rows - 1) / kCfg.tile_q; }
  FA3_DEV u32 coarse_flags(const GradientStep& step, const SequenceRows& q) const {
    const i64 first = args.main.tiles.first(step.batch, step.head, q.begin, kCfg.tile_q);
    u32 flags = 0;
    FA3_UNROLL
    for (i32 p = 0; p < kParts; ++p) {
      const i32 tile = kParts * step.q_tile + p;
      if (tile <= last_q_tile() && ptx::ld_global(args.main.coarse.tiles + first + tile) != 0)
        flags |= GradientStep::kCoarse << p;
    }
    return flags;
  }

  FA3_DEV void load(const GradientStep& step, const SequenceRows& q, const SequenceRows& kv) {
    const BwdArgs& main = args.main;
    u32 s = ring.stage;
    smem.empty[s].wait(ring.phase);
    put(s, step);
    if (step.is(GradientStep::kEmpty)) return hand_over();
    const HeadRows keys{kv.begin, kv.used, step.head / main.group_size, step.batch};
    const HeadRows rows{q.begin, q.used, step.head, step.batch};
    const i32 row = kParts * kCfg.tile_q * step.q_tile;
    load_stats(s, step, q, 0, kCfg.stats_bytes());
    load_tile<kCfg.ragged, kCfg.k_tile()>(smem.pair[s], main.k, smem.full[s], keys, step.key,
                                          ptx::L2Hint::kEvictLast);
    load_tile<kCfg.ragged, kCfg.q_tiles()>(smem.pair[s] + kCfg.k_tile().bytes(), main.q,
                                           smem.full[s], rows, row, ptx::L2Hint::kEvictLast);
    ring.advance();
    s = ring.stage;
    smem.empty[s].wait(ring.phase);
    load_stats(s, step, q, kCfg.delta_at(), kCfg.delta_bytes());
    load_tile<kCfg.ragged, kCfg.v_tile()>(smem.pair[s], main.v, smem.full[s], keys, step.key,
                                          ptx::L2Hint::kEvictLast);
    load_tile<kCfg.ragged, kCfg.dout_tiles()>(smem.pair[s] + kCfg.v_tile().bytes(), main.dout,
                                              smem.full[s], rows, row, ptx::L2Hint::kEvictLast);
    ring.advance();
  }
  // `from`: of a tile's row_floats().
  FA3_DEV void load_stats(u32 s, const GradientStep& step, const SequenceRows& q, i32 from,
                          i32 bytes) const {
    const u32 count = static_cast<u32>(bytes);
    ptx::mbar_expect_tx(smem.full[s].address(), kParts * count);
    const i64 first = args.main.tiles.first(step.batch, step.head, q.begin, kCfg.tile_q);
    FA3_UNROLL
    for (i32 p = 0; p < kParts; ++p) {
      const i64 at = first + min(kParts * step.q_tile + p, last_q_tile());  // behind it: masked
      ptx::bulk_load(ptx::smem_address(smem.stats[kParts * static_cast<i32>(s) + p]),
                     args.main.stats + at * kCfg.row_floats() + from, count,
                     smem.full[s].address());
    }
  }
  FA3_DEV void put(u32 s, const GradientStep& step) const {
    ptx::st_shared(&smem.step[s][0],
                   ptx::Vec<i32, 4>{{step.batch, step.head, step.key, step.q_tile}});
    ptx::st_shared(&smem.step[s][1], ptx::Vec<i32, 4>{{step.q_used, step.kv_used, step.kv_first,
                                                       static_cast<i32>(step.flags)}});
  }
  // A stage without loads, in which a step stands.
  FA3_DEV void hand_over() {
    ptx::mbar_arrive(smem.full[ring.stage].address(), 2);
    ring.advance();
  }
  FA3_DEV void hand_over(const GradientStep& step) {
    smem.empty[ring.stage].wait(ring.phase);
    put(ring.stage, step);
    hand_over();
  }
};

// A consumer: 64 keys of each step, sums in registers.
template <BwdConfig kCfg>
struct MaskGradientConsumer : BwdParts<kCfg, MaskGradientSmem<kCfg>> {
  using Parts = BwdParts<kCfg, MaskGradientSmem<kCfg>>;
  using Parts::kQueries, Parts::kType, Parts::kK, Parts::kV;
  using Parts::masked, Parts::place, Parts::smem, Parts::thread, Parts::tile, Parts::wg;
  using typename Parts::Scores;
  static constexpr int kParts = kCfg.parts();
  // Ids and slopes, or LSE in floats, are read by threads.
  static constexpr bool kReadsStats = kCfg.functors || kCfg.softcap;

  const MaskGradientArgs& out;
  Ring<kCfg.stages> ring;
  Scores sums[kParts];

  FA3_DEV MaskGradientConsumer(MaskGradientSmem<kCfg>& smem, const MaskGradientArgs& args, u32 wg)
      : Parts(smem, args.main, wg), out(args) {}

  FA3_DEV void run() {
    clear();
    FA3_NO_UNROLL
    for (;;) {
      smem.full[ring.stage].wait(ring.phase);
      const GradientStep step = load_step();
      if (step.is(GradientStep::kEnd)) return;
      if (step.is(GradientStep::kEmpty)) {
        ptx::warp_sync();  // all lanes have read the step
        release(ring.stage);
        ring.advance();
      } else {
        add(step);
      }
      if (!step.is(GradientStep::kLast)) continue;
      store(step);
      clear();
    }
  }

 private:
  FA3_DEV void clear() {
    FA3_UNROLL
    for (int p = 0; p < kParts; ++p) sums[p].zero();
  }
  // Through a reduction, so that the compiler sees one value per warp.
  FA3_DEV static i32 one(i32 x) { return static_cast<i32>(ptx::redux_or(static_cast<u32>(x))); }
  FA3_DEV GradientStep load_step() const {
    const ptx::Vec<i32, 4> a = ptx::ld_shared(&smem.step[ring.stage][0]);
    const ptx::Vec<i32, 4> b = ptx::ld_shared(&smem.step[ring.stage][1]);
    return {one(a[0]), one(a[1]), one(a[2]), one(a[3]),
            b[0],      b[1],      b[2],      static_cast<u32>(one(b[3]))};
  }
  // Keys of a stage's first tile, queries of its second.
  template <TileLayout kKeys, TileLayout kRows, class Then>
  FA3_DEV void gemm(u32 stage, u32 part, Scores& to, const Then& then) const {
    const u32 at = ptx::smem_address(smem.pair[stage]);
    const u32 rows = kQueries * part * static_cast<u32>(kRows.panel_width());
    gemm_ss<kType, kRows.columns / 16>(
        to, KMajorOperand<kKeys>::at(at + this->template own_bytes<kKeys>()),
        KMajorOperand<kRows>::at(at + static_cast<u32>(kKeys.bytes()) + rows), kOverwrite, then);
  }
  FA3_DEV void release(u32 stage) const {
    if constexpr (kReadsStats) ptx::warp_sync();  // else all lanes have waited for a GEMM
    smem.empty[stage].arrive_if(ptx::lane_index() == 0);
  }

  FA3_DEV void add(const GradientStep& step) {
    this->see_keys({.q_used = step.q_used,
                    .kv_used = step.kv_used,
                    .first_row = step.kv_first,
                    .key = step.key,
                    .batch = step.batch});
    place = {step.batch, step.head, step.key};
    masked = step.is(GradientStep::kMasked);
    tile = kParts * step.q_tile;
    typename Parts::MaskPart parts[kQueries / 8];
    load(parts);  // before anything that is waited for
    ptx::AFrag ones;
    set_ones(ones);
    const u32 first = ring.stage;
    ring.advance();
    const u32 second = ring.stage;
    FA3_UNROLL
    for (u32 p = 0; p < kParts; ++p) {
      Scores s, dp;
      const u32 of_q = kParts * first + p, of_dout = kParts * second + p;
      gemm<kK, kCfg.q_tiles()>(first, p, s, [&] { this->add_lse(of_q, ones, s); });
      if (p == 0) smem.full[second].wait(ring.phase);
      gemm<kV, kCfg.dout_tiles()>(
          second, p, dp, [&] { add_terms(dp, ones, ptx::smem_address(smem.stats[of_dout])); });
      gemm_wait<1>(s);
      if (!kReadsStats && p + 1 == kParts) release(first);
      make_p(of_q, step.is(GradientStep::kCoarse << p), s, parts);
      if constexpr (kReadsStats) {
        ptx::fence_proxy_async_shared();  // copies write there next
        if (p + 1 == kParts) release(first);
      }
      ++tile;
      if (p + 1 < kParts) load(parts);
      gemm_wait<0>(dp);
      add(sums[p], s, dp);
    }
    release(second);
    ring.advance();
  }

  FA3_DEV void make_p(u32 of_q, bool coarse, Scores& s,
                      const typename Parts::MaskPart (&parts)[kQueries / 8]) {
    const auto part_of = [&parts](int j) { return parts[j]; };
    if (kCfg.adds_mask() && coarse)
      this->make_coarse_p(of_q, s, part_of);
    else
      Parts::make_p(of_q, s, part_of);
  }
  FA3_DEV void load(typename Parts::MaskPart (&parts)[kQueries / 8]) const {
    FA3_UNROLL
    for (int j = 0; j < kQueries / 8; ++j) parts[j] = this->mask_part(j);
  }
  // P ∘ (dP − δ), of which `dp` has the difference; of a hidden pair, P = 0, it may be anything.
  FA3_DEV static void add(Scores& to, const Scores& p, const Scores& dp) {
    FA3_UNROLL
    for (int i = 0; i < kQueries / 2; ++i)
      if (p[i] != 0) to[i] = ptx::fma(p[i], dp[i], to[i]);
  }

  // dattn_mask's element of the step's batch entry and head, or of all.
  FA3_DEV i64 first_of(const GradientStep& of) const {
    return (out.batches.own == 1 ? 0 : of.batch) * out.batch +
           (out.heads.own == 1 ? 0 : of.head) * out.head;
  }
  FA3_DEV void put(const GradientStep& of, i32 row, i32 key, float x) const {
    if (row >= out.rows || key >= out.keys) return;
    const i64 at = first_of(of) + row * out.row + key;
    if (out.f32)
      ptx::st_global(static_cast<float*>(out.data) + at, x);
    else
      ptx::st_global(static_cast<u16*>(out.data) + at, static_cast<u16>(pack16<kType>(x, 0.f)));
  }
  FA3_DEV static float over_lanes(float x, u32 from, u32 to) {
    for (u32 mask = from; mask <= to; mask *= 2) x += ptx::shfl_xor(x, mask);
    return x;
  }

  FA3_DEV void store(const GradientStep& of) {
    if (out.sum_keys) return store_over_keys(of);
    const i32 row = kParts * kQueries * of.q_tile + static_cast<i32>(this->column());
    const i32 key = of.key + static_cast<i32>(this->own_row());
    if (out.sum_rows) {
      FA3_UNROLL
      for (int h = 0; h < 2; ++h) {
        float sum = 0;
        FA3_UNROLL
        for (int p = 0; p < kParts; ++p) {
          FA3_UNROLL
          for (int i = 2 * h; i < kQueries / 2; i += 4) sum += sums[p][i] + sums[p][i + 1];
        }
        sum = over_lanes(sum, 1, 2);
        if (ptx::lane_index() % 4 == 0) put(of, 0, key + 8 * h, sum);
      }
      return;
    }
    if (out.fours) return store_fours(of);
    FA3_UNROLL
    for (int p = 0; p < kParts; ++p) {
      FA3_UNROLL
      for (int i = 0; i < kQueries / 2; ++i)
        put(of, row + kQueries * p + 8 * (i / 4) + i % 2, key + i % 4 / 2 * 8, sums[p][i]);
    }
  }
  // Four lanes with neighbouring keys exchange their values of four queries, so that each has four
  // keys of one.
  FA3_DEV void store_fours(const GradientStep& of) {
    const u32 lane = ptx::lane_index(), at = lane / 4 % 4;  // of the four lanes
    const i32 key =
        of.key + static_cast<i32>(kCfg.own_keys() * wg + thread / 32 * 16 + lane / 16 * 4);
    FA3_UNROLL
    for (int p = 0; p < kParts; ++p) {
      FA3_UNROLL
      for (int j = 0; j < kQueries / 8; j += 2) {
        const i32 row = kQueries * (kParts * of.q_tile + p) +
                        static_cast<i32>(8 * (j + at / 2) + this->column() + at % 2);
        FA3_UNROLL
        for (int h = 0; h < 2; ++h) {
          float x[4];
          FA3_UNROLL
          for (int i = 0; i < 4; ++i) x[i] = sums[p][4 * (j + i / 2) + 2 * h + i % 2];
          transpose_fours<4>(x);
          put_four(of, row, key + 8 * h, x);
        }
      }
    }
  }
  FA3_DEV void put_four(const GradientStep& of, i32 row, i32 key, const float (&x)[4]) const {
    if (row >= out.rows || key >= out.keys) return;
    const i64 at = first_of(of) + row * out.row + key;
    if (out.f32) {
      ptx::st_global(reinterpret_cast<ptx::Vec<float, 4>*>(static_cast<float*>(out.data) + at),
                     ptx::Vec<float, 4>{{x[0], x[1], x[2], x[3]}});
    } else {
      ptx::st_global(reinterpret_cast<ptx::Vec<u32, 2>*>(static_cast<u16*>(out.data) + at),
                     ptx::Vec<u32, 2>{{pack16<kType>(x[0], x[1]), pack16<kType>(x[2], x[3])}});
    }
  }
  // By way of shared memory: keys are those of all warps.
  FA3_DEV void store_over_keys(const GradientStep& of) {
    constexpr NamedBarrier kSums{kSumsBar, kWgThreads * kCfg.consumer_wgs};
    constexpr i32 kWarps = MaskGradientSmem<kCfg>::kWarps, kRows = kParts * kQueries;
    const u32 lane = ptx::lane_index(), warp = (kWgThreads * wg + thread) / 32;
    FA3_UNROLL
    for (u32 p = 0; p < kParts; ++p) {
      FA3_UNROLL
      for (u32 i = 0; i < kQueries / 4; ++i) {
        const u32 at = i / 2 * 4 + i % 2;
        const float sum = over_lanes(sums[p][at] + sums[p][at + 2], 4, 16);
        const u32 row = kQueries * p + 8 * (i / 2) + 2 * lane + i % 2;
        if (lane < 4) ptx::st_shared(&smem.sums[warp][row], sum);
      }
    }
    kSums.sync();
    if (warp == 0) {
      float all = 0;
      FA3_NO_UNROLL
      for (i32 row = static_cast<i32>(lane); row < kRows; row += 32) {
        float sum = 0;
        for (i32 w = 0; w < kWarps; ++w) sum += ptx::ld_shared(&smem.sums[w][row]);
        if (!out.sum_rows) put(of, kRows * of.q_tile + row, 0, sum);
        all += sum;
      }
      all = over_lanes(all, 1, 16);
      if (out.sum_rows && lane == 0) put(of, 0, 0, all);
    }
    kSums.sync();
  }
};

}  // namespace fa3::sm90
