// SPDX-License-Identifier: BSD-3-Clause
// config.h — one variant of the backward kernels as a value: host data, cache key and template
// argument at once. What follows from it is computed here, for host, device and simulator alike.
#pragma once

#include "device/attn/kinds.h"
#include "device/hopper/tile_layout.h"
#include "device/ptx/mma_types.h"
#include "device/types.h"

namespace fa3::sm90 {

// Bytes that zeros are copied from.
inline constexpr int kZeroBytes = 1024;

// The kernels before and behind the main one: threads of a CTA, which has one Q tile; in bwd_bound,
// a part of the keys.
inline constexpr int kBwdRowThreads = 256;
// Of bwd_sinks; and the CTAs that share a head there.
inline constexpr int kBwdSinksSmemBytes = 4 * (kBwdRowThreads / 32 + 1), kBwdSinksCluster = 8;
// Lanes that share a row there, eight columns each at a time.
FA3_HD constexpr int row_lanes(int columns) { return min(columns / 8, 16); }

// Slots in the finder's queue of Q tiles: more than stages of Q, so that the queue never limits how
// far the producer runs ahead of the dQ writers.
inline constexpr int kBwdSteps = 8;

struct BwdConfig {
  MmaType dtype = MmaType::kBf16;  // of Q, K, V; what is rounded on the way has it, too
  // Of the GEMMs; tensors may have fewer columns, which TMA fills with zeros.
  int head_dim_qk = 128, head_dim_v = 128;
  int tile_q = 64;        // queries per tile
  int consumer_wgs = 2;   // each owns 64 keys of a KV tile
  int stages = 2;         // of the ring of dO and δ; Q and LSE have one more
  bool softcap = false;   // scores are softcap·tanh(score / softcap)
  bool functors = false;  // ALiBi slopes and sequence ids, each where it is given
  MaskTensor attn_mask = MaskTensor::kNone;
  bool ragged = false;  // varlen or with seqused: the kernels read the lengths
  // dQ's sums are integers (fixed.h): the same bits in whatever order they are added to.
  bool deterministic = false;
  // The main kernel sets dQ's sums to 0 (dq_zeros.h), else bwd_delta does.
  bool sets_zeros = false;
  bool mask_gradient = false;  // of the kernel that makes dattn_mask: gradient_of()

  constexpr bool operator==(const BwdConfig&) const = default;

  // Where attn_mask is added, exponents, LSE and slopes are in natural units, as it is; else in
  // units of log2.
  FA3_HD constexpr bool has_mask() const { return attn_mask != MaskTensor::kNone; }
  FA3_HD constexpr bool adds_mask() const { return adds_to_scores(attn_mask); }

  // Both consumers have the same 64 keys, one makes P, dS and dV, the other dK and dQ: accumulators
  // of more than 128 columns are as many registers as one warpgroup has.
  FA3_HD constexpr bool wide() const { return head_dim_qk > 128 || head_dim_v > 128; }
  FA3_HD constexpr bool split() const { return wide() && !mask_gradient; }
  // Keys from one consumer's to the next one's.
  FA3_HD constexpr u32 own_keys() const { return split() ? 0 : kWgRows; }
  FA3_HD constexpr int tile_kv() const { return split() ? kWgRows : kWgRows * consumer_wgs; }
  FA3_HD constexpr int threads() const { return kWgThreads * (consumer_wgs + 1); }
  // CTAs of a cluster: two neighbours visit the same Q tiles, each with keys of its own. They
  // exchange dS, and each makes half of the columns of dQ, of the keys of both.
  FA3_HD constexpr int cluster() const { return split() ? 2 : 1; }
  FA3_HD constexpr int cluster_kv() const { return cluster() * tile_kv(); }

  // Which Q tiles are visited lies in data: a warp finds them (finder.h).
  FA3_HD constexpr bool lists() const { return !mask_gradient && (functors || has_mask()); }

  // Head dim 64, whose exponentials take as long as two GEMMs: the second consumer starts half a
  // step late, so that one makes P under the GEMMs of the other, and dQ is made one tile behind, so
  // that neither waits for the other's dS.
  FA3_HD constexpr bool staggered() const { return dq_by_rows(); }

  // What one accumulator holds of a tile of dQ: 64 of its rows, or where it has no more than 64, a
  // part of the columns, which the consumers share, or the CTAs of a cluster.
  FA3_HD constexpr bool dq_by_rows() const { return tile_q == kWgRows * consumer_wgs; }
  FA3_HD constexpr int dq_columns() const {
    return dq_by_rows() ? head_dim_qk : head_dim_qk / (split() ? cluster() : consumer_wgs);
  }
  // Of which so many go to a dQ writer at a time: split, each of the two takes half of the columns
  // in two turns.
  FA3_HD constexpr int dq_turns() const { return split() ? 2 : 1; }
  FA3_HD constexpr int dq_piece_columns() const {
    return split() ? dq_columns() / (consumer_wgs * dq_turns()) : dq_columns();
  }
  // Sums of a tile of dQ, 32 bits each, in the order of the consumers' registers (dq_place).
  FA3_HD constexpr int dq_sums() const { return tile_q * head_dim_qk; }
  // Deterministic, words beside them: bits, for at most 64 columns which of a thread's registers
  // are +∞ or NaN, 128 words on, which are −∞ or NaN; and, aligned, how often was added.
  FA3_HD constexpr int dq_flag_columns() const { return min(dq_columns(), 64); }
  FA3_HD constexpr int dq_count_at() const {
    return 2 * kWgThreads * dq_sums() / (kWgRows * dq_flag_columns());
  }
  FA3_HD constexpr int dq_flags() const { return deterministic ? dq_count_at() + 4 : 0; }

  // Registers per thread after setmaxnreg; where consumers need fewer, the producer has some more.
  FA3_HD constexpr int producer_registers() const { return roomy() ? 40 : 24; }
  FA3_HD constexpr int consumer_registers() const { return roomy() ? 232 : 240; }
  FA3_HD constexpr bool roomy() const {
    return mask_gradient || (split() && lists()) ||
           (!staggered() && head_dim_qk + head_dim_v <= 128);
  }

  // Tiles in shared memory; Q, dO and dS of a stage.
  FA3_HD constexpr TileLayout k_tile() const { return {tile_kv(), head_dim_qk, 2}; }
  FA3_HD constexpr TileLayout v_tile() const { return {tile_kv(), head_dim_v, 2}; }
  FA3_HD constexpr TileLayout q_tile() const { return {tile_q, head_dim_qk, 2}; }
  FA3_HD constexpr TileLayout dout_tile() const { return {tile_q, head_dim_v, 2}; }
  // dS lies as dQ's GEMM reads it best, a query a row, or as its maker has it, a key a row.
  FA3_HD constexpr bool ds_turned() const { return !split() && !mask_gradient; }
  FA3_HD constexpr TileLayout ds_tile() const {
    return ds_turned() ? TileLayout{tile_q, tile_kv(), 2} : TileLayout{tile_kv(), tile_q, 2};
  }
  // What is known of a tile's rows, in floats of global memory, one after another: what comes with
  // Q, which is LSE, with functors ids and ALiBi slopes; −δ, which comes with dO; dQ's scales.
  // LSE and δ are terms of GEMMs (column_term.h), but with a softcap LSE is a float a row.
  FA3_HD constexpr int term_floats() const { return tile_q * kColumnTermBytes / 4; }
  FA3_HD constexpr int ids_at() const { return term_floats(); }
  FA3_HD constexpr int slope_at() const { return ids_at() + tile_q; }
  FA3_HD constexpr int id_range_at() const { return slope_at() + 2; }  // least and greatest id
  // Where a mask is added, whether LSE of some row is coarse, in 128 bytes, since terms begin at
  // multiples of that; with coarse_loop() not here.
  FA3_HD constexpr int coarse_at() const { return term_floats() + (functors ? 2 * tile_q : 0); }
  FA3_HD constexpr int delta_at() const {
    return coarse_at() + (adds_mask() && !coarse_loop() ? 32 : 0);
  }
  // Head dim 64 beside an added mask: KV tiles that no coarse row sees have a loop without the
  // other way to P, behind which ptxas does not read the mask ahead (mask_sm90.md).
  FA3_HD constexpr bool coarse_loop() const {
    return adds_mask() && head_dim_qk + head_dim_v <= 128;
  }
  FA3_HD constexpr int scales_at() const { return delta_at() + term_floats(); }
  FA3_HD constexpr int row_floats() const { return scales_at() + (deterministic ? tile_q : 0); }
  FA3_HD constexpr int stats_bytes() const { return 4 * delta_at(); }
  FA3_HD constexpr int delta_bytes() const { return 4 * term_floats(); }
  // In shared memory scales are needed for a step longer than the tile of Q, and have twice its
  // stages.
  FA3_HD constexpr int scale_bytes() const { return deterministic ? 4 * tile_q : 0; }
  FA3_HD constexpr int scale_slots() const { return 2 * q_stages(); }
  // Consumers that make P.
  FA3_HD constexpr int mask_makers() const { return split() ? 1 : consumer_wgs; }
  FA3_HD constexpr int ds_slots() const { return split() ? 1 : 2; }
  FA3_HD constexpr int ds_writers() const { return split() ? 1 : consumer_wgs; }
  FA3_HD constexpr int q_stages() const { return stages + 1; }
  // Of the other CTA's keys, what this one's part of dQ takes: K's columns, and dS.
  FA3_HD constexpr TileLayout peer_k_tile() const {
    return {tile_kv(), head_dim_qk / cluster(), 2};
  }
  FA3_HD constexpr int peer_bytes() const {
    return split() ? peer_k_tile().bytes() + ds_tile().bytes() : 0;
  }

  // Shared memory of the other kernels. bwd_bound: rows of K and V at a time, four a thread, and
  // what is found of them; bwd_delta: tiles of O and dO; bwd_dq: a tile's sums and a barrier.
  FA3_HD constexpr int bound_rows() const { return 4 * kBwdRowThreads / row_lanes(head_dim_qk); }
  FA3_HD constexpr int bound_smem_bytes() const {
    return 2 * bound_rows() * (head_dim_qk + head_dim_v) + 16;
  }
  FA3_HD constexpr int delta_smem_bytes() const {
    const int rows = 2 * 2 * tile_q * head_dim_v;
    if (!adds_mask()) return rows;
    const int tiles = rows + max(16, 2 * coarse_tile().bytes() - rows) + 4 * tile_q;
    return static_cast<int>(round_up(tiles, 1024));
  }
  // Tiles of Q and of K in bwd_delta, in the place of O and dO, which makes some scores again.
  FA3_HD constexpr TileLayout coarse_tile() const { return {kWgRows, head_dim_qk, 2}; }
  FA3_HD constexpr int dq_smem_bytes() const { return 4 * dq_sums() + 128; }

  // dattn_mask: a stage holds K and Q, or V and dO, of several tiles of queries.
  FA3_HD constexpr int parts() const { return wide() ? 1 : 2; }
  FA3_HD constexpr TileLayout q_tiles() const { return {tile_q * parts(), head_dim_qk, 2}; }
  FA3_HD constexpr TileLayout dout_tiles() const { return {tile_q * parts(), head_dim_v, 2}; }
  FA3_HD constexpr int pair_bytes() const {
    return 2 * (tile_kv() + tile_q * parts()) * max(head_dim_qk, head_dim_v);
  }

  FA3_HD constexpr int smem_bytes() const {
    if (mask_gradient) {
      const int of_stages = stages * (pair_bytes() + parts() * stats_bytes() + 32 + 2 * 8);
      const int of_threads = 16 * kWgThreads * mask_makers() * (functors ? 2 : 1);
      const int sums = 4 * kWgThreads / 32 * consumer_wgs * parts() * tile_q;
      return static_cast<int>(round_up(of_stages + of_threads + sums, 1024));
    }
    const int tiles = k_tile().bytes() + v_tile().bytes() + q_stages() * q_tile().bytes() +
                      stages * dout_tile().bytes() + ds_slots() * ds_tile().bytes() + peer_bytes();
    const int dq = 4 * kWgRows * consumer_wgs * dq_piece_columns() + (sets_zeros ? kZeroBytes : 0);
    constexpr int kUnused = 3 * 16 + 2 * 128;  // members that a variant does not touch
    const int steps = lists() ? kBwdSteps : 1;
    const int barriers =
        4 + 2 * q_stages() + 2 * stages + ds_slots() * (ds_writers() + 1) + 2 * steps;
    return static_cast<int>(
        round_up(tiles + dq + kUnused + q_stages() * stats_bytes() + stages * delta_bytes() +
                     scale_slots() * scale_bytes() +
                     16 * kWgThreads * (mask_makers() + (functors ? mask_makers() : 0)) +
                     (16 * kWgThreads / 32 + 8) * consumer_wgs + 8 * steps + 8 * barriers,
                 1024));
  }
};

// The kernel that makes dattn_mask, beside a main kernel of `main` that has attn_mask. Its head
// dims may be less, but above 128 as long as those are.
FA3_HD constexpr BwdConfig gradient_of(BwdConfig main) {
  main.mask_gradient = true, main.sets_zeros = false;
  main.stages = main.wide() ? 2 : max(main.head_dim_qk, main.head_dim_v) > 64 ? 3 : 4;
  return main;
}

// Of a row of a tile among its ids, dQ's scales and, with a softcap, LSE: the four rows of 16 that
// one thread of a fragment has, two neighbours and those 8 further on, follow one another.
FA3_HD constexpr i32 stats_place(i32 row) {
  return row / 16 * 16 + row % 8 / 2 * 4 + row % 16 / 8 * 2 + row % 2;
}

}  // namespace fa3::sm90
