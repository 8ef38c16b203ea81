// SPDX-License-Identifier: BSD-3-Clause
// config.h — one variant of the forward kernel as a value: host data, cache key, test id and
// template argument at once. Each part of the kernel reads a struct of its own; what follows from
// all of them together (threads, shared memory, registers) is computed in FwdConfig, for host,
// device and simulator alike.
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

// The element types of the GEMMs' operands and of O.
struct FwdTypes {
  MmaType qk = MmaType::kBf16;  // Q and K
  MmaType v = MmaType::kBf16;   // V and P
  MmaType o = MmaType::kBf16;   // 16 bits

  constexpr bool operator==(const FwdTypes&) const = default;

  // True: Q and K are 8-bit codes, which scales turn into values.
  FA3_HD constexpr bool scaled() const { return size_of(qk) == 1; }
  // True: V is 8-bit. wgmma takes 8-bit operands K-major only, so V is transposed: ahead of the
  // kernel (FwdLoad::v_image), or by two warps of it.
  FA3_HD constexpr bool v8() const { return size_of(v) == 1; }

  // The depth of a wgmma: columns of Q and K, keys.
  FA3_HD constexpr int qk_step() const { return 32 / size_of(qk); }
  FA3_HD constexpr int pv_step() const { return 32 / size_of(v); }
};

// The sizes of tiles, and how many a CTA holds.
struct FwdTile {
  int head_dim_qk = 128;  // of the GEMMs, multiples of FwdConfig::columns_unit(); tensors may have
  int head_dim_v = 128;   // fewer columns, which TMA fills with zeros and clips
  int kv = 128;           // keys, a multiple of 16
  int stages = 2;         // of the K ring and of the V ring
  int consumer_wgs = 2;   // each owns 64 rows of Q
  int q_stages = 1;       // Q tiles in shared memory

  constexpr bool operator==(const FwdTile&) const = default;

  FA3_HD constexpr int q() const { return kWgRows * consumer_wgs; }
};

// How tensors lie in memory, and how they are loaded (producer.h, transposer.h).
struct FwdLoad {
  bool ragged = false;              // varlen or with seqused: the kernel reads the lengths
  KvSource kv = KvSource::kTensor;  // from a cache: ragged, too
  bool v_image = false;  // 8-bit V was transposed ahead of the kernel, into images of a stage
  int raw_v_stages = 0;  // 8-bit V that the kernel transposes: stages of V as it lies in memory

  constexpr bool operator==(const FwdLoad&) const = default;

  FA3_HD constexpr bool cached() const { return kv != KvSource::kTensor; }
};

// How Q·Kᵀ becomes P (scores.h, scales.h).
struct FwdScores {
  ScoreKind kind = ScoreKind::kPlain;
  KvScales kv_scales = KvScales::kHead;  // 8 bits; finer ones of E4M3 V take flush_columns
  // 8 bits: the scales change along head_dim, too. So many columns of Q·Kᵀ at a time are multiplied
  // and added up in FP32; V's scales change between flush_columns. 0: they do not change.
  int scale_columns = 0;
  SoftmaxVariant softmax{};

  constexpr bool operator==(const FwdScores&) const = default;

  FA3_HD constexpr bool block_scales() const { return kv_scales != KvScales::kHead; }
  FA3_HD constexpr bool column_scales() const { return scale_columns > 0; }
};

// Which keys are hidden from a row (mask.h).
struct FwdMask {
  MaskKind kind = MaskKind::kFull;
  MaskTensor tensor = MaskTensor::kNone;  // attn_mask
  // attn_mask that is added: its tiles in shared memory, for each consumer. 0: elements are read
  // one by one only.
  int stages = 0;

  constexpr bool operator==(const FwdMask&) const = default;

  FA3_HD constexpr bool has_tensor() const { return tensor != MaskTensor::kNone; }
  // True: attn_mask is added to scores. These are then in natural units, as it is: finite numbers
  // that hide keys would be infinite in others.
  FA3_HD constexpr bool adds_tensor() const { return adds_to_scores(tensor); }
};

// How P·V is summed (accumulate.h); the first two with 8-bit V.
struct FwdAccumulate {
  // So many columns of P·V at a time are summed apart, tile by tile, and added to O in FP32. 0: the
  // tensor cores add to O, and keep 13 bits of it.
  int flush_columns = 0;
  // Instead: after this many KV tiles, a power of two, O is added to FP32 sums in shared memory and
  // begins anew (parked.h). 0: never.
  int park_tiles = 0;
  // KV tiles of a part of the keys, each computed from nothing on: bits of a row then depend on its
  // own sequence alone (common/key_parts.h). 0: all keys are one part.
  int part_tiles = 0;

  constexpr bool operator==(const FwdAccumulate&) const = default;
};

// How O leaves a consumer (epilogue.h).
struct FwdOutput {
  bool f32 = false;        // in FP32, from registers; else in 16 bits, through shared memory
  bool in_q = false;       // through Q's buffer, else through its own
  int parts = 1;           // its own buffer holds this part of O's columns, which leave in turns
  bool max_logit = false;  // max_logit as well, for which the softmax keeps_greatest

  constexpr bool operator==(const FwdOutput&) const = default;
};

// What overlaps: the paper's techniques, which sm90/ablation measures.
struct FwdOverlap {
  FwdStep step = FwdStep::kTwoStage;
  bool ping_pong = true;  // consumers take turns at the tensor cores
  FwdSchedule schedule = FwdSchedule::kPersistent;
  bool specialised = true;  // producer and scheduler are warps of their own (fwd.cuh)

  constexpr bool operator==(const FwdOverlap&) const = default;

  // True: the kernel is one of sm90/ablation.
  FA3_HD constexpr bool ablation() const { return step != FwdStep::kTwoStage || !specialised; }
};

struct FwdConfig {
  FwdTypes types{};
  FwdTile tile{};
  FwdLoad load{};
  FwdScores scores{};
  FwdMask mask{};
  FwdAccumulate accumulate{};
  FwdOutput output{};
  FwdOverlap overlap{};

  constexpr bool operator==(const FwdConfig&) const = default;

  static constexpr int kWorkSlots = 2;  // Q tiles that a CTA holds at a time

  FA3_HD constexpr int threads() const {
    return kWgThreads * (tile.consumer_wgs + (overlap.specialised ? 1 : 0));
  }

  // Head dims of the GEMMs are multiples of this.
  FA3_HD constexpr int columns_unit() const {
    return types.scaled() ? 32 : load.cached() ? 64 : 16;
  }

  // True: two warps of the kernel transpose the tiles of V.
  FA3_HD constexpr bool transposes() const { return types.v8() && !load.v_image; }

  // True: V has a producer warp of its own. A producer's instructions delay the consumer warps on
  // its scheduler, and the rest of their warpgroup waits for those at each GEMM: with 8 bits, and
  // from a cache, where places are looked up, two producers on two schedulers share the work. Other
  // 16-bit kernels wait for the tensor cores; where warps transpose V, they take that place.
  FA3_HD constexpr bool v_producer() const {
    return (types.scaled() || (load.cached() && !mask.has_tensor())) && !transposes() &&
           overlap.specialised;
  }

  // The number of GEMMs for a tile's P·V.
  FA3_HD constexpr int pv_parts() const {
    return accumulate.flush_columns == 0 ? 1 : tile.head_dim_v / accumulate.flush_columns;
  }
  // True: these GEMMs come in pairs, one added while the other is multiplied. The second takes the
  // registers of S, once P is an operand.
  FA3_HD constexpr bool pairs_parts() const {
    return pv_parts() % 2 == 0 && !scores.block_scales();
  }

  FA3_HD constexpr Accumulate accumulates() const {
    if (accumulate.flush_columns > 0)
      return pairs_parts() ? Accumulate::kPaired : Accumulate::kFlushed;
    if (accumulate.part_tiles > 0) return Accumulate::kParts;
    return accumulate.park_tiles > 0 ? Accumulate::kParked : Accumulate::kDirect;
  }

  // True: a consumer leaves out KV tiles that none of its own rows sees. With 192 rows under a mask
  // those are many; else the code for it costs more than it saves (docs/tuning/fwd_sm90.md).
  FA3_HD constexpr bool skips() const {
    return tile.consumer_wgs == 3 && mask.kind != MaskKind::kFull && !overlap.ablation();
  }

  // True: a consumer looks for the next Q tile when it has left out the last KV tiles of this one,
  // which in chunks are as many as other rows see: the next is claimed when the last K is about to
  // be loaded, which waits for them. In windows the stages hold those that are left out
  // (most_skipped()), and it looks while its last GEMM runs.
  FA3_HD constexpr bool looks_late() const { return skips() && mask.kind == MaskKind::kChunk; }
  // Of a window, or a causal mask: rows of other consumers begin at most so many tiles before.
  FA3_HD constexpr int most_skipped() const {
    return static_cast<int>(div_up((tile.consumer_wgs - 1) * kWgRows, tile.kv));
  }

  // Registers per thread after setmaxnreg; 64 Ki in all for threads() of them. Without
  // specialisation each has what the launch gives. A scheduler that scans keys for a mask functor
  // or tiles for attn_mask, and a producer that looks keys up in a cache, take registers from the
  // consumers where there are two.
  FA3_HD constexpr int producer_registers(bool scans = false) const {
    if (!overlap.specialised) return 0;
    if (tile.consumer_wgs == 3) return 32;
    if (load.kv == KvSource::kRows) return 72;
    if (tile.consumer_wgs == 1 || scans || mask.has_tensor() || load.cached()) return 56;
    return tile_registers() > 204 ? 24 : 40;
  }
  FA3_HD constexpr int consumer_registers(bool scans = false) const {
    if (!overlap.specialised) return tile.consumer_wgs == 3 ? 168 : 255;
    if (tile.consumer_wgs != 2) return tile.consumer_wgs == 1 ? 256 : 160;
    if (load.kv == KvSource::kRows) return 216;
    return scans || mask.has_tensor() || load.cached() ? 224 : tile_registers() > 204 ? 240 : 232;
  }
  // Registers per thread held by S, O, P and what is added to O.
  FA3_HD constexpr int tile_registers() const {
    // A step of its own (columns.h): S and a part of it, then P as numbers, as operand, and P·V.
    if (scores.column_scales())
      return tile.kv / 2 + tile.head_dim_v / 2 +
             max(tile.kv / 2, tile.kv * size_of(types.v) / 8 + accumulate.flush_columns / 2);
    const int s = overlap.step == FwdStep::kThreeStage ? tile.kv : tile.kv / 2;
    return s + (tile.head_dim_v + accumulate.flush_columns) / 2 + tile.kv * size_of(types.v) / 8;
  }

  // Bytes of a consumer's parked O.
  FA3_HD constexpr int parked_bytes() const {
    return accumulate.park_tiles == 0 ? 0 : kWgRows * tile.head_dim_v * 4;
  }

  // Tiles in shared memory: one consumer's Q, attn_mask and O, a stage of K and of V as TMA loads
  // it.
  FA3_HD constexpr TileLayout q_tile() const {
    return {kWgRows, tile.head_dim_qk, size_of(types.qk)};
  }
  FA3_HD constexpr TileLayout k_tile() const {
    return {tile.kv, tile.head_dim_qk, size_of(types.qk)};
  }
  FA3_HD constexpr TileLayout v_tile() const {
    return {tile.kv, tile.head_dim_v, size_of(types.v)};
  }
  FA3_HD constexpr TileLayout mask_tile() const {
    return {kWgRows, tile.kv, mask.tensor == MaskTensor::kF32 ? 4 : 2};
  }
  FA3_HD constexpr TileLayout o_tile() const {
    return {kWgRows, tile.head_dim_v, size_of(types.o)};
  }
  FA3_HD constexpr TurnedTile turned_v() const { return {tile.kv, tile.head_dim_v}; }
  // A stage of V as the GEMM reads it.
  FA3_HD constexpr int v_bytes() const {
    return types.v8() ? turned_v().bytes() : v_tile().bytes();
  }
  FA3_HD constexpr bool o_fits_q() const { return o_tile().bytes() <= q_tile().bytes(); }

  // The panels of O that leave at a time, and the bytes of O's own buffer.
  FA3_HD constexpr int o_part_panels() const {
    return static_cast<int>(div_up(o_tile().panels(), output.parts));
  }
  FA3_HD constexpr int o_bytes() const {
    return output.in_q || output.f32 ? 0 : o_part_panels() * o_tile().panel_bytes();
  }
  FA3_HD constexpr int barriers() const {
    return 2 * tile.consumer_wgs * (tile.q_stages + mask.stages) + 4 * tile.stages +
           2 * load.raw_v_stages + 2 * kWorkSlots + 1;
  }
  static constexpr int kWorkBytes = 100;  // of FwdSharedWork
  FA3_HD constexpr int smem_bytes() const {
    constexpr int kAlign = 1024;  // of every tile: the period of the widest swizzle
    const i64 tiles = round_up(tile.q_stages * tile.consumer_wgs * q_tile().bytes(), kAlign) +
                      round_up(tile.stages * k_tile().bytes(), kAlign) +
                      round_up(tile.stages * v_bytes(), kAlign) +
                      round_up(tile.consumer_wgs * o_bytes(), kAlign);
    return static_cast<int>(round_up(tiles + kWorkBytes * kWorkSlots + 8 * barriers(), kAlign) +
                            round_up(load.raw_v_stages * v_tile().bytes(), kAlign) +
                            mask.stages * tile.consumer_wgs * mask_tile().bytes() +
                            tile.consumer_wgs * parked_bytes());
  }
};

}  // namespace fa3::sm90
