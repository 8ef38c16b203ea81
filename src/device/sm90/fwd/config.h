// SPDX-License-Identifier: BSD-3-Clause
// config.h — one variant of the forward kernel as a value: host data, cache key, test id and
// template argument at once. What follows from it (threads, shared memory, registers) is computed
// here, for host, device and simulator alike.
#pragma once

#include "device/attn/kinds.h"
#include "device/hopper/tile_layout.h"
#include "device/ptx/mma_types.h"
#include "device/types.h"
#include "device/warp/softmax_variant.h"

namespace fa3::sm90 {

// How a consumer overlaps a KV tile's two GEMMs with its softmax. Rows of the table are two-stage;
// the others are there to be measured against it (sm90/ablation).
enum class FwdStep : u8 {
  kSerial,    // S = Q·Kᵀ, softmax, O += P·V, one after the other
  kTwoStage,  // Q·Kᵀ of a tile is issued before P·V of the previous one, which softmax overlaps
  kThreeStage  // softmax overlaps Q·Kᵀ of the next tile and P·V of the previous one
};

enum class FwdSchedule : u8 {
  kOneTile,    // a CTA per Q tile
  kPersistent  // as many CTAs as fit, each takes the next tile when it is free (scheduler.h)
};

// Scales of K and V.
enum class KvScales : u8 {
  kHead,   // one a head
  kTiles,  // of blocks of rows, each of whole tiles
  kKeys    // of any blocks of rows, looked up key by key
};

// Who adds up P·V of the KV tiles (accumulate.h).
enum class Accumulate : u8 {
  kDirect,   // the tensor cores
  kParked,   // they for park_tiles at a time, then FP32 sums in shared memory
  kFlushed,  // FP32, tile by tile, flush_columns at a time
  kPaired,   // likewise, one part while the next is multiplied
  kParts     // the tensor cores, for part_tiles at a time, which are then folded (parts.h)
};

struct FwdConfig {
  MmaType dtype_qk = MmaType::kBf16;  // of Q and K
  MmaType dtype_v = MmaType::kBf16;   // of V, and of P
  MmaType dtype_o = MmaType::kBf16;   // of 16 bits
  MaskKind mask = MaskKind::kFull;
  ScoreKind score = ScoreKind::kPlain;
  MaskTensor attn_mask = MaskTensor::kNone;
  int head_dim_qk = 128;  // of the GEMMs, multiples of columns_unit(); tensors may have fewer
  int head_dim_v = 128;   // columns, which TMA fills with zeros and clips
  int tile_kv = 128;      // keys per tile, a multiple of 16
  int stages = 2;         // of the K ring and of the V ring
  int raw_v_stages = 0;   // 8-bit V that is transposed here: of V as it lies in memory
  bool v_image = false;   // 8-bit V that was transposed before, into images of a stage
  // 8-bit V: columns of P·V at a time that are summed apart, tile by tile, and added to O in FP32.
  // 0: the tensor cores add to O, and keep 13 bits of it.
  int flush_columns = 0;
  // 8-bit V, instead: after this many KV tiles, a power of two, O is added to FP32 sums in shared
  // memory and begins anew (parked.h). 0: never.
  int park_tiles = 0;
  // KV tiles of a part of the keys, each part computed by itself: bits of a row do not depend on
  // others. 0: one part.
  int part_tiles = 0;
  KvScales kv_scales = KvScales::kHead;  // 8 bits; finer ones of E4M3 V take flush_columns
  // 8 bits: scales change along head_dim, too. Of Q·Kᵀ so many columns at a time are multiplied and
  // added up in FP32; V's change between flush_columns. 0: they do not.
  int scale_columns = 0;
  int consumer_wgs = 2;  // each owns 64 rows of Q
  int q_stages = 1;      // Q tiles in shared memory
  // attn_mask that is added: its tiles in shared memory, for each consumer. 0: elements are read
  // one by one only.
  int mask_stages = 0;
  FwdStep step = FwdStep::kTwoStage;
  SoftmaxVariant softmax;
  bool ping_pong = true;  // consumers take turns at the tensor cores
  bool o_f32 = false;     // O leaves registers in FP32; else as dtype_o, through shared memory
  bool o_in_q = false;    // O leaves through Q's buffer, else through its own
  int o_parts = 1;        // its own buffer holds this part of O's columns, which leave in turns
  bool ragged = false;    // varlen or with seqused: the kernel reads the lengths
  KvSource kv = KvSource::kTensor;  // from a cache: ragged, too
  FwdSchedule schedule = FwdSchedule::kPersistent;
  bool specialised = true;  // producer and scheduler are warps of their own (fwd.cuh)

  constexpr bool operator==(const FwdConfig&) const = default;

  // Is this a kernel of sm90/ablation?
  FA3_HD constexpr bool ablation() const { return step != FwdStep::kTwoStage || !specialised; }

  static constexpr int kWorkSlots = 2;  // Q tiles that a CTA holds at a time

  FA3_HD constexpr int tile_q() const { return kWgRows * consumer_wgs; }
  FA3_HD constexpr int threads() const {
    return kWgThreads * (consumer_wgs + (specialised ? 1 : 0));
  }

  // Has Q codes that scales turn into values?
  FA3_HD constexpr bool scaled() const { return size_of(dtype_qk) == 1; }
  // Is V of 8 bits, which wgmma takes by columns only? If it does not come so, two warps transpose
  // its tiles.
  FA3_HD constexpr bool v8() const { return size_of(dtype_v) == 1; }
  FA3_HD constexpr bool transposes() const { return v8() && !v_image; }

  // 8 bits: has V a producer warp of its own? Its instructions delay the consumer warps that share
  // its scheduler, and the others of their warpgroup wait for those at each GEMM: so two producers,
  // on two schedulers. Not where transposers take the place, nor with 16 bits, which wait for the
  // tensor cores; but from a cache, where places are looked up.
  FA3_HD constexpr bool v_producer() const {
    return (scaled() || (cached() && !has_mask())) && !transposes() && specialised;
  }
  FA3_HD constexpr bool cached() const { return kv != KvSource::kTensor; }

  FA3_HD constexpr bool block_scales() const { return kv_scales != KvScales::kHead; }
  FA3_HD constexpr bool column_scales() const { return scale_columns > 0; }

  // Head dims of the GEMMs are multiples of this.
  FA3_HD constexpr int columns_unit() const { return scaled() ? 32 : cached() ? 64 : 16; }

  // Depth of a wgmma: columns of Q and K, keys.
  FA3_HD constexpr int qk_step() const { return 32 / size_of(dtype_qk); }
  FA3_HD constexpr int pv_step() const { return 32 / size_of(dtype_v); }

  // GEMMs for a tile's P·V.
  FA3_HD constexpr int pv_parts() const {
    return flush_columns == 0 ? 1 : head_dim_v / flush_columns;
  }
  // Are they in pairs, one added while the other is multiplied? The second takes the registers of
  // S, once P is an operand.
  FA3_HD constexpr bool pairs_parts() const { return pv_parts() % 2 == 0 && !block_scales(); }

  FA3_HD constexpr Accumulate accumulates() const {
    if (flush_columns > 0) return pairs_parts() ? Accumulate::kPaired : Accumulate::kFlushed;
    if (part_tiles > 0) return Accumulate::kParts;
    return park_tiles > 0 ? Accumulate::kParked : Accumulate::kDirect;
  }

  // Has it attn_mask, and is that added to scores? These are then in natural units, as it is:
  // finite numbers that hide keys would be infinite in others.
  FA3_HD constexpr bool has_mask() const { return attn_mask != MaskTensor::kNone; }
  FA3_HD constexpr bool adds_mask() const { return adds_to_scores(attn_mask); }

  // Does a consumer leave out KV tiles that none of its own rows sees? With 192 rows under a mask
  // those are many; else the code for it costs more than it saves (docs/tuning/fwd_sm90.md).
  FA3_HD constexpr bool skips() const {
    return consumer_wgs == 3 && mask != MaskKind::kFull && !ablation();
  }

  // Registers per thread after setmaxnreg; 64 Ki in all for threads() of them. Without
  // specialisation each has what the launch gives. A scheduler that scans keys for a mask functor
  // or tiles for attn_mask, and a producer that looks keys up in a cache, take registers from the
  // consumers where there are two.
  FA3_HD constexpr int producer_registers(bool scans = false) const {
    if (!specialised) return 0;
    if (consumer_wgs == 3) return 32;
    if (kv == KvSource::kRows) return 72;
    if (consumer_wgs == 1 || scans || has_mask() || cached()) return 56;
    return tile_registers() > 204 ? 24 : 40;
  }
  FA3_HD constexpr int consumer_registers(bool scans = false) const {
    if (!specialised) return consumer_wgs == 3 ? 168 : 255;
    if (consumer_wgs != 2) return consumer_wgs == 1 ? 256 : 160;
    if (kv == KvSource::kRows) return 216;
    return scans || has_mask() || cached() ? 224 : tile_registers() > 204 ? 240 : 232;
  }
  // Registers per thread held by S, O, P and what is added to O.
  FA3_HD constexpr int tile_registers() const {
    // A step of its own (columns.h): S and a part of it, then P as numbers, as operand, and P·V.
    if (column_scales())
      return tile_kv / 2 + head_dim_v / 2 +
             max(tile_kv / 2, tile_kv * size_of(dtype_v) / 8 + flush_columns / 2);
    const int s = step == FwdStep::kThreeStage ? tile_kv : tile_kv / 2;
    return s + (head_dim_v + flush_columns) / 2 + tile_kv * size_of(dtype_v) / 8;
  }

  // Bytes of a consumer's parked O.
  FA3_HD constexpr int parked_bytes() const {
    return park_tiles == 0 ? 0 : kWgRows * head_dim_v * 4;
  }

  // Tiles in shared memory: one consumer's Q, attn_mask and O, a stage of K and of V as TMA loads
  // it.
  FA3_HD constexpr TileLayout q_tile() const { return {kWgRows, head_dim_qk, size_of(dtype_qk)}; }
  FA3_HD constexpr TileLayout k_tile() const { return {tile_kv, head_dim_qk, size_of(dtype_qk)}; }
  FA3_HD constexpr TileLayout v_tile() const { return {tile_kv, head_dim_v, size_of(dtype_v)}; }
  FA3_HD constexpr TileLayout mask_tile() const {
    return {kWgRows, tile_kv, attn_mask == MaskTensor::kF32 ? 4 : 2};
  }
  FA3_HD constexpr TileLayout o_tile() const { return {kWgRows, head_dim_v, size_of(dtype_o)}; }
  FA3_HD constexpr TurnedTile turned_v() const { return {tile_kv, head_dim_v}; }
  // A stage of V as the GEMM reads it.
  FA3_HD constexpr int v_bytes() const { return v8() ? turned_v().bytes() : v_tile().bytes(); }
  FA3_HD constexpr bool o_fits_q() const { return o_tile().bytes() <= q_tile().bytes(); }

  // The panels of O that leave at a time, and the bytes of O's own buffer.
  FA3_HD constexpr int o_part_panels() const {
    return static_cast<int>(div_up(o_tile().panels(), o_parts));
  }
  FA3_HD constexpr int o_bytes() const {
    return o_in_q || o_f32 ? 0 : o_part_panels() * o_tile().panel_bytes();
  }
  FA3_HD constexpr int barriers() const {
    return 2 * consumer_wgs * (q_stages + mask_stages) + 4 * stages + 2 * raw_v_stages +
           2 * kWorkSlots + 1;
  }
  static constexpr int kWorkBytes = 96;  // of FwdSharedWork
  FA3_HD constexpr int smem_bytes() const {
    constexpr int kAlign = 1024;  // of every tile: the period of the widest swizzle
    const i64 tiles = round_up(q_stages * consumer_wgs * q_tile().bytes(), kAlign) +
                      round_up(stages * k_tile().bytes(), kAlign) +
                      round_up(stages * v_bytes(), kAlign) +
                      round_up(consumer_wgs * o_bytes(), kAlign);
    return static_cast<int>(round_up(tiles + kWorkBytes * kWorkSlots + 8 * barriers(), kAlign) +
                            round_up(raw_v_stages * v_tile().bytes(), kAlign) +
                            mask_stages * consumer_wgs * mask_tile().bytes() +
                            consumer_wgs * parked_bytes());
  }
};

}  // namespace fa3::sm90
