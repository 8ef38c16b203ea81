// SPDX-License-Identifier: BSD-3-Clause
// coarse_rows.h — a part of delta.cuh, beside an added mask: which rows of a Q tile have an LSE
// that is too coarse to make weights of (attn/coarse_lse.h), and for a tile that has some the
// largest score of each and ln Σ, from its scores made again: Sᵀ = K·Qᵀ by the same GEMM as in the
// main kernel, so that the weights which that makes of the same scores add up to 1.
#pragma once

#include "device/attn/coarse_lse.h"
#include "device/hopper/gemm.h"
#include "device/hopper/swizzle.h"
#include "device/ptx/barrier.h"
#include "device/ptx/fence.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/bwd/args.h"
#include "device/sm90/bwd/mask_part.h"
#include "device/sm90/bwd/work.h"
#include "device/warp/fragment.h"

namespace fa3::sm90 {

// Where in shared memory: tiles in the place of O and dO, which have been read.
struct CoarseSmem {
  u8 *q, *k;
  float* lse;  // of the tile's rows where it is coarse, else 0
};

// Each of two warpgroups has half of the tile's queries, and all keys.
template <BwdConfig kCfg>
struct CoarseRows {
  static constexpr MmaType kType = kCfg.dtype;
  static constexpr TileLayout kTile = kCfg.coarse_tile();
  static constexpr int kQueries = kWgRows / 2, kWarps = kWgThreads / 32;
  static constexpr int kColumns = kQueries / 4;  // that a thread has
  static_assert(kCfg.tile_q == kWgRows && kBwdRowThreads == 2 * kWgThreads, "two halves of a tile");
  using Scores = ptx::Acc<kQueries>;
  using Two = ptx::Vec<float, 2>;

  const CoarseSmem& smem;
  const BwdMaskedDeltaArgs& args;
  const BwdQTile& work;
  i64 at;  // the tile, among those of all heads and sequences
  u32 wg = ptx::warpgroup_index(), thread = ptx::thread_index() % kWgThreads;

  // All threads, once smem.lse is written.
  FA3_DEV void run() const {
    ptx::cta_sync();
    const u32 lane = ptx::lane_index();
    const bool any =
        ptx::any(ptx::ld_shared(smem.lse + lane) != 0 || ptx::ld_shared(smem.lse + lane + 32) != 0);
    if (ptx::thread_index() == 0) {
      const float flag = any ? 1.f : 0.f;
      ptx::st_global(args.main.coarse.tiles + at, flag);
      if constexpr (!kCfg.coarse_loop())
        ptx::st_global(args.stats + at * kCfg.row_floats() + kCfg.coarse_at(), flag);
    }
    if (any) measure();
  }

 private:
  FA3_DEV i32 first_query() const { return kWgRows * work.tile; }

  FA3_DEV void measure() const {
    const BwdArgs& main = args.main;
    const SequenceRows kv = rows_of_warp<kCfg.ragged>(main.kv_axis, main.batch, work.batch);
    const TileRange range =
        tile_range(main.band, work.rows.used, kv.used, first_query(), kWgRows, kWgRows);
    load(smem.q, args.q, work.head, i64{first_row(args.q_axis, work.rows)} + first_query(),
         work.rows.used - first_query());
    float largest[kColumns], sum[kColumns];
    FA3_UNROLL
    for (int c = 0; c < kColumns; ++c) largest[c] = -kInf, sum[c] = 0;
    FA3_NO_UNROLL
    for (i32 tile = range.first; tile < range.end; ++tile) {
      if (!main.image.shows(work.batch, work.head, work.tile, tile)) continue;
      const i32 key = kWgRows * tile;
      load(smem.k, args.k, work.head / args.group_size, i64{first_row(main.kv_axis, kv)} + key,
           kv.used - key);
      ptx::fence_proxy_async_shared();
      ptx::cta_sync();
      Scores s;
      const u32 q_at =
          ptx::smem_address(smem.q) + kQueries * wg * static_cast<u32>(kTile.panel_width());
      gemm_ss<kType, kCfg.head_dim_qk / 16>(s, KMajorOperand<kTile>::at(ptx::smem_address(smem.k)),
                                            KMajorOperand<kTile>::at(q_at), kOverwrite);
      gemm_wait<0>(s);
      make_scores(s, kv, key);
      take(s, largest, sum);
      ptx::cta_sync();  // before the next tile of K, or what store() puts there
    }
    store(largest, sum);
  }

  // 64 rows of a tensor; zeros from row `rows` and the tensor's last column on.
  FA3_DEV void load(u8* tile, const BwdTensor& from, i32 head, i64 row, i32 rows) const {
    constexpr u32 kChunks = static_cast<u32>(kTile.row_bytes()) / 16;
    constexpr u32 kWidth = static_cast<u32>(kTile.panel_width());
    const auto* const data =
        static_cast<const u16*>(from.data) + work.batch * from.batch + head * from.head;
    FA3_NO_UNROLL
    for (u32 i = ptx::thread_index(); i < kChunks * kWgRows; i += kBwdRowThreads) {
      const i32 r = static_cast<i32>(i / kChunks), column = static_cast<i32>(8 * (i % kChunks));
      ptx::Vec<u32, 4> chunk{};
      if (r < rows && column < args.main.head_dim_qk)
        chunk = ptx::ld_global(
            reinterpret_cast<const ptx::Vec<u32, 4>*>(data + (row + r) * from.row + column));
      const u32 byte = 2 * static_cast<u32>(column);
      u8* const panel = tile + byte / kWidth * static_cast<u32>(kTile.panel_bytes());
      ptx::st_shared(reinterpret_cast<ptx::Vec<u32, 4>*>(
                         panel + panel_offset(i / kChunks, byte % kWidth, kTile.swizzle())),
                     chunk);
    }
  }

  // Scores in natural units as the main kernel has them before LSE is subtracted; −∞ where the
  // query does not see the key.
  FA3_DEV void make_scores(Scores& s, const SequenceRows& kv, i32 first_key) const {
    const BwdArgs& main = args.main;
    const i32 q_used = work.rows.used;
    const i32 key = first_key + static_cast<i32>(fragment_row(thread));
    const i32 query = first_query() + static_cast<i32>(kQueries * wg + fragment_column(thread));
    const Range<i32> seen[2] = {rows_of_key(main.band, q_used, kv.used, key),
                                rows_of_key(main.band, q_used, kv.used, key + 8)};
    FA3_UNROLL
    for (int j = 0; j < kQueries / 8; ++j) {
      const auto part = BwdMaskPart<kCfg>::load(main, {work.batch, work.head, first_key}, 0, thread,
                                                work.tile, kQueries / 8 * static_cast<int>(wg) + j);
      FA3_UNROLL
      for (int i = 0; i < 4; ++i) {
        float& x = s[4 * j + i];
        const i32 row = query + 8 * j + i % 2;
        if constexpr (kCfg.softcap) x = ptx::tanh_approx(x * main.score_factor);
        x = ptx::fma(x, main.scale_log2, part.value(i) + bias(row, key + i / 2 * 8, kv));
        const Range<i32>& rows = seen[i / 2];
        if (row < rows.lo || row >= rows.hi || !part.sees(i) || !same_id(row, key + i / 2 * 8, kv))
          x = -kInf;
      }
    }
  }
  FA3_DEV float bias(i32 query, i32 key, const SequenceRows& kv) const {
    const ElementArgs& e = args.elements;
    if (!kCfg.functors || e.alibi_slopes == nullptr) return 0;
    const float slope = -ptx::ld_global_nc(e.alibi_slopes + work.batch * e.slope_batch + work.head);
    return slope * ptx::abs(static_cast<float>(query + kv.used - work.rows.used - key));
  }
  FA3_DEV bool same_id(i32 query, i32 key, const SequenceRows& kv) const {
    const ElementArgs& e = args.elements;
    if (!kCfg.functors || e.ids_q == nullptr || query >= work.rows.used || key >= kv.used)
      return true;
    const i64 row = i64{first_row(args.q_axis, work.rows)} + query;
    const i64 of_key = i64{first_row(args.main.kv_axis, kv)} + key;
    return ptx::ld_global_nc(e.ids_q + work.batch * e.id_q_batch + row) ==
           ptx::ld_global_nc(args.main.ids_kv + work.batch * args.main.id_kv_batch + of_key);
  }

  // Into the largest of each of the thread's columns and Σ exp(score − largest).
  FA3_DEV static void take(const Scores& s, float (&largest)[kColumns], float (&sum)[kColumns]) {
    FA3_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const int i = 4 * (c / 2) + c % 2;
      const float before = largest[c];
      largest[c] = ptx::max(before, ptx::max(s[i], s[i + 2]));
      sum[c] = weight(before, largest[c]) * sum[c] + weight(s[i], largest[c]) +
               weight(s[i + 2], largest[c]);
    }
  }
  // exp(score − largest), 0 of −∞.
  FA3_DEV static float weight(float score, float largest) {
    return score == -kInf ? 0.f : ptx::ex2((score - largest) * kLog2e);
  }
  FA3_DEV static void merge(float& largest, float& sum, float other, float of_other) {
    const float most = ptx::max(largest, other);
    sum = weight(largest, most) * sum + weight(other, most) * of_other;
    largest = most;
  }

  // Lanes and warps that have other keys of a column, and the result of each row.
  FA3_DEV void store(const float (&most)[kColumns], const float (&sums)[kColumns]) const {
    Two* const of_warps = reinterpret_cast<Two*>(smem.k) + kQueries * kWarps * wg;
    FA3_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      float largest = most[c], sum = sums[c];
      FA3_UNROLL
      for (u32 m = 4; m < 32; m *= 2) {
        const float other = ptx::shfl_xor(largest, m), of_other = ptx::shfl_xor(sum, m);
        merge(largest, sum, other, of_other);
      }
      const u32 query = static_cast<u32>(8 * (c / 2) + c % 2) + fragment_column(thread);
      if (ptx::lane_index() < 4)
        ptx::st_shared(of_warps + kQueries * (thread / 32) + query, Two{{largest, sum}});
    }
    ptx::cta_sync();
    if (thread >= kQueries) return;
    float largest = -kInf, sum = 0;
    FA3_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      const Two of_warp = ptx::ld_shared(of_warps + kQueries * w + thread);
      merge(largest, sum, of_warp[0], of_warp[1]);
    }
    const u32 row = kQueries * wg + thread;
    const float lse = ptx::ld_shared(smem.lse + row);
    float log_sum = log_sum_of_coarse(lse, largest, ptx::lg2(sum) * kLn2);
    if (largest == -kInf) largest = 0, log_sum = kInf;  // sees no key
    if (lse == 0) largest = log_sum = 0;                // S has a term of LSE
    float* const to = args.main.coarse.rows + 2 * kWgRows * at + row;
    ptx::st_global(to, largest);
    ptx::st_global(to + kWgRows, log_sum);
  }
};

}  // namespace fa3::sm90
