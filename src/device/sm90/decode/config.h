// SPDX-License-Identifier: BSD-3-Clause
// config.h — one variant of the decode kernel as a value, and what follows from it for host, device
// and simulator.
#pragma once

#include "device/attn/kinds.h"
#include "device/hopper/tile_layout.h"
#include "device/ptx/mma_types.h"
#include "device/types.h"

namespace fa3::sm90 {

inline constexpr int kMostDecodeRows = 128;  // packed rows of a tile, where they are many,
inline constexpr int kMostNarrowRows = 64;   // and where keys are the rows of GEMMs
// KV tiles that take a CTA as long as it takes to begin and end a unit (units.h).
inline constexpr int kUnitTiles = 2;

// The query heads of a KV head are rows of one tile, query by query: packed row r is query r / G,
// head r % G of a group of G.
struct DecodeConfig {
  MmaType dtype = MmaType::kBf16;  // of Q, K, V, and of P; with kv8 of Q, with q8 of neither
  ScoreKind score = ScoreKind::kPlain;
  bool alibi = false;
  bool o_f32 = false;               // O in FP32, else as dtype
  bool ragged = false;              // varlen or with seqused: the kernel reads the lengths
  KvSource kv = KvSource::kTensor;  // from a cache: ragged, too
  int head_dim_qk = 128;  // of the GEMMs, multiples of 64; tensors may have fewer columns, which
  int head_dim_v = 128;   // TMA fills with zeros
  int rows = 8;           // packed rows of a tile, a multiple of 8
  bool one_tile = true;   // all packed rows of a sequence; false: they may take several
  int tile_kv = 64;       // keys of a tile, a multiple of 64
  int stages = 6;         // of the K ring and of the V ring
  int consumers = 1;      // warpgroups, which share the packed rows of a tile
  int ctas_per_sm = 1;    // side by side: one loads while another begins or ends a unit
  int part_tiles = 0;     // KV tiles of a part of the keys (common/key_parts.h); 0: equal shares
  // True: packed rows are the rows of GEMMs, 64 of each consumer (wide_consumer.h), and keys are
  // the columns of the first; false: the other way round (consumer.h).
  bool wide = false;
  // True: the CTAs of a cluster share a unit and merge its parts in their shared memory
  // (cluster_units.h); false: all CTAs share all units (units.h), and combine() merges.
  bool clusters = false;
  // True: whoever loads a tile first writes the new keys in it, which no other CTA reads; Q is
  // rotated as it is loaded. One tile of packed rows of one consumer; some query sees each new key.
  bool appends = false;
  // True: tree_mask hides some of the last keys.
  bool tree = false;
  bool chunks = false;  // of keys, which any band may have
  // True: K and V are E4M3, and come to the tensor cores as F16 (widen.h), as Q does.
  bool kv8 = false;
  // With kv8 consumers take turns at KV tiles, each for all packed rows, and merge what they have;
  // stages are a multiple of them.
  // False: they share the rows.
  bool in_turns = false;
  bool q8 = false;  // with kv8: Q is E4M3, too, and dtype is that of O

  constexpr bool operator==(const DecodeConfig&) const = default;

  static constexpr int kWarps = 4;  // of a consumer
  static constexpr int kStep = 16;  // depth of a wgmma

  // Producers are warps of the last warpgroup.
  FA3_HD constexpr int threads() const { return (consumers + 1) * kWgThreads; }
  FA3_HD constexpr u32 consumer_warps() const { return static_cast<u32>(kWarps * consumers); }
  FA3_HD constexpr int consumer_rows() const { return in_turns ? rows : rows / consumers; }
  FA3_HD constexpr bool cached() const { return kv != KvSource::kTensor; }
  FA3_HD constexpr u32 producer_warps() const {
    return kv == KvSource::kRuns || kv == KvSource::kRows ? 4 : 1;
  }

  // Whether each warp computes GEMMs for its 16 keys or columns of O by itself, by mma.sync.
  FA3_HD constexpr bool by_warps() const { return kv8 && rows <= 16; }
  FA3_HD constexpr MmaType operand() const { return kv8 ? MmaType::kF16 : dtype; }
  FA3_HD constexpr int kv_bytes() const { return kv8 ? 1 : 2; }
  FA3_HD constexpr TileLayout q_tile() const { return {consumer_rows(), head_dim_qk, 2}; }
  FA3_HD constexpr TileLayout k_tile() const { return {tile_kv, head_dim_qk, kv_bytes()}; }
  FA3_HD constexpr TileLayout v_tile() const { return {tile_kv, head_dim_v, kv_bytes()}; }
  FA3_HD constexpr int p_bytes() const { return tile_kv * consumer_rows() * 2; }
  // From one row of O to the next in shared memory: 4 rows of a warp lie in banks of their own.
  FA3_HD constexpr int o_width() const { return head_dim_v + 4; }
  FA3_HD constexpr int q_p_o_bytes() const {
    if (wide) return q_tile().bytes();
    return fa3::max(q_tile().bytes() + p_bytes(), 4 * consumer_rows() * o_width());
  }
  // Registers per thread after setmaxnreg, where equal shares are not enough for two consumers that
  // are wide or widen keys; 0: all threads have the same.
  FA3_HD constexpr int consumer_registers() const {
    if (!(wide || kv8) || consumers < 2) return 0;
    const int less = wide && kv == KvSource::kRows ? 8 : 0;
    return (ctas_per_sm > 1 ? 96 : consumers == 2 ? 224 : 152) - less;
  }
  FA3_HD constexpr int producer_registers() const {
    if (consumer_registers() == 0) return 0;
    const int all = ctas_per_sm > 1 ? 240 : consumers == 2 ? 504 : 512;
    return all - consumers * consumer_registers();
  }
  // Blocks of 64 keys, and of 64 columns of O.
  FA3_HD constexpr int key_blocks() const { return tile_kv / kWgRows; }
  FA3_HD constexpr int o_blocks() const { return head_dim_v / kWgRows; }

  FA3_HD constexpr int smem_bytes() const {
    const int row_bytes = wide ? 0 : kv8 ? 64 : 56;  // of DecodeRow and the numbers of a row
    const i64 of_consumer = round_up(q_p_o_bytes() + consumer_rows() * row_bytes, 1024);
    return static_cast<int>(stages * (k_tile().bytes() + v_tile().bytes()) +
                            consumers * of_consumer + round_up((8 * 4 + 4) * stages, 1024));
  }
};

// The KV tile that comes when tile `at` of [first, end) would in ascending order: parts of a fixed
// number of keys begin with the last, as the forward does.
template <DecodeConfig kCfg>
FA3_HD constexpr i32 tile_in_turn(i32 at, i32 first, i32 end) {
  return kCfg.part_tiles > 0 ? end - 1 - (at - first) : at;
}

// Most dynamic shared memory of each of n CTAs on an SM, which takes 1 KB more for each.
constexpr int decode_smem_bytes(int n) { return 228 * 1024 / n - 1024; }
inline constexpr int kDecodePairBytes = 32 * 1024;  // of a tile of K and one of V, at least

// The kernel behind it, which merges the parts of tiles that several CTAs share.
struct CombineConfig {
  MmaType dtype = MmaType::kBf16;
  bool o_f32 = false;
  bool ragged = false;
  bool from_cache = false;
  int head_dim_v = 128;
  int rows = 8;
  bool one_tile = true;
  int tile_kv = 64;
  int part_tiles = 0;
  bool appends = false;
  bool chunks = false;

  constexpr bool operator==(const CombineConfig&) const = default;

  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kFewParts = 8;  // that a warp has in flight

  FA3_HD constexpr bool cached() const { return from_cache; }
  FA3_HD constexpr int smem_bytes() const { return kWarps * (head_dim_v + 4) * 4; }
};
constexpr CombineConfig combine_of(const DecodeConfig& c) {
  return {c.dtype,    c.o_f32,   c.ragged,     c.cached(), c.head_dim_v, c.rows,
          c.one_tile, c.tile_kv, c.part_tiles, c.appends,  c.chunks};
}

}  // namespace fa3::sm90
