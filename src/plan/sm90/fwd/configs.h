// SPDX-License-Identifier: BSD-3-Clause
// configs.h — the tile sizes of Hopper's forward, and the only file that holds one. The
// first row that fits a problem is used; docs/tuning/fwd_sm90.md says how each was found. The
// plans of some 380 problems are in tests/golden/plan.csv.
#pragma once

#include <initializer_list>

#include "device/sm90/common/part_keys.h"
#include "device/sm90/fwd/config.h"
#include "runtime/launch_shape.h"

namespace fa3::sm90 {

// What a problem multiplies: types of Q and K, and of V.
enum class Operands : unsigned char {
  k16,      // 16 bits
  kE4m3,    // E4M3
  kI8E4m3,  // INT8 Q and K, E4M3 V
  kI8V16,   // INT8 Q and K, 16-bit V
};

// Which sums of 8-bit V the tensor cores may keep, 13 bits of each.
enum class Sums : unsigned char {
  kShort,   // all
  kLong,    // those of a few KV tiles: V may have a mean
  kBlocks,  // those of one KV tile: V has scales of blocks
};

// A row fits problems of its operands, head dims up to those of config.tile, its masks, and at most
// max_seqlen_q queries per sequence and head (0 = any number; varlen: twice the mean length); with
// three consumers, problems without functors for which tiles of 192 queries pay; of its sums
// (fwd/plan.cpp); and plain ones, where it has registers for no others.
struct FwdRow {
  const char* name;
  unsigned masks;  // 1 << MaskKind of each
  int max_seqlen_q;
  FwdConfig config;         // types, masks, scores, ragged: filled in from the problem
  unsigned int8_masks = 0;  // more masks, with INT8 Q and K
  bool plain_only = false;  // no score function, functors, scales of blocks or O in FP32

  constexpr Sums sums() const {
    if (config.accumulate.flush_columns > 0) return plain_only ? Sums::kLong : Sums::kBlocks;
    return config.accumulate.park_tiles > 0 ? Sums::kLong : Sums::kShort;
  }
  constexpr bool takes(Operands operands) const {
    if (config.types.v8()) return operands == Operands::kE4m3 || operands == Operands::kI8E4m3;
    return operands == (config.types.scaled() ? Operands::kI8V16 : Operands::k16);
  }
};

constexpr unsigned mask_bit(MaskKind mask) { return 1u << static_cast<unsigned>(mask); }
inline constexpr unsigned kFull = mask_bit(MaskKind::kFull);
inline constexpr unsigned kCausal = mask_bit(MaskKind::kCausal);
inline constexpr unsigned kWindow = mask_bit(MaskKind::kWindow);
inline constexpr unsigned kMasked = kCausal | kWindow;
inline constexpr unsigned kNoWindow = kFull | kCausal;
inline constexpr unsigned kAnyMask = kFull | kMasked;

// In what rows differ; all else is as FwdConfig has it. o_parts: of O's own buffer; 0: O leaves
// through Q's.
constexpr FwdConfig config_of(const FwdTile& tile, bool ping_pong, int o_parts,
                              bool test_first = true) {
  FwdConfig c;
  c.tile = tile;
  c.scores.softmax = {.lazy_rescale = true, .test_first = test_first};
  c.output = {.in_q = o_parts == 0, .parts = max(o_parts, 1)};
  c.overlap.ping_pong = ping_pong;
  return c;
}
// 8-bit V: raw_v_stages in addition; 0: V is transposed by a kernel of its own.
constexpr FwdConfig v8_of(const FwdTile& tile, int o_parts, int raw_v_stages) {
  FwdConfig c = config_of(tile, false, o_parts);
  c.types.qk = c.types.v = MmaType::kE4m3;
  c.load.v_image = raw_v_stages == 0;
  c.load.raw_v_stages = raw_v_stages;
  c.scores.softmax.p_log2 = 4;
  return c;
}
// And O in FP32 every few tiles.
constexpr FwdConfig parked_of(const FwdTile& tile, int o_parts, int park_tiles) {
  FwdConfig c = v8_of(tile, o_parts, 0);
  c.accumulate.park_tiles = park_tiles;
  return c;
}
// Or P·V of each tile.
constexpr FwdConfig flushed_of(const FwdTile& tile, int o_parts, int flush_columns) {
  FwdConfig c = v8_of(tile, o_parts, 0);
  c.accumulate.flush_columns = flush_columns;
  return c;
}
// 8-bit Q and K only.
constexpr FwdConfig qk8_of(const FwdTile& tile, bool ping_pong, int o_parts) {
  FwdConfig c = config_of(tile, ping_pong, o_parts);
  c.types.qk = MmaType::kS8;
  return c;
}

// clang-format off
inline constexpr FwdRow kFwdRows[] = {
// name                  masks     most q         qk  v   kv  st wgs q ping_pong o test_first
  {"d64 few rows",    kAnyMask, 64,   config_of({ 64,  64, 128, 4, 1, 1}, false, 1)},
  {"d64 full",           kFull,    0,    config_of({ 64,  64, 128, 3, 3, 2},  true, 1, false)},
  {"d64 masked",         kMasked,  0,    config_of({ 64,  64, 128, 3, 3, 2},  true, 1)},
  {"d64",                kAnyMask, 0,    config_of({ 64,  64, 128, 3, 2, 2},  true, 1)},
  {"d96 full",           kFull,    0,    config_of({ 96,  96,  96, 4, 3, 1}, false, 1)},
  {"d96 masked short",   kMasked,  1024, config_of({ 96,  96,  64, 4, 3, 2}, false, 1)},
  {"d96 masked",         kMasked,  0,    config_of({ 96,  96,  96, 3, 3, 2}, false, 1)},
  {"d96",                kAnyMask, 0,    config_of({ 96,  96, 128, 2, 2, 2},  true, 1)},
  {"d128 few rows",   kAnyMask, 64,   config_of({128, 128, 128, 3, 1, 1}, false, 0)},
  {"d128 full",          kFull,    0,    config_of({128, 128,  80, 3, 3, 1}, false, 0)},
  {"d128 masked short",  kMasked,  1024, config_of({128, 128,  64, 4, 3, 2}, false, 0)},
  {"d128 window",        kWindow,  0,    config_of({128, 128,  64, 4, 3, 1}, false, 1)},
  {"d128 causal",        kCausal,  4096, config_of({128, 128,  64, 4, 3, 1}, false, 1)},
  {"d128 causal long",   kCausal,  0,    config_of({128, 128,  80, 3, 3, 1}, false, 1)},
  {"d128",               kAnyMask, 0,    config_of({128, 128, 128, 2, 2, 2}, false, 1)},
  {"d192 dv128 masked",  kMasked,  0,    config_of({192, 128,  64, 3, 3, 1}, false, 2)},
  {"d192 dv128",         kAnyMask, 0,    config_of({192, 128, 128, 2, 2, 1}, false, 2)},
  {"d192 masked short",  kMasked,  2048, config_of({192, 192,  64, 2, 2, 1}, false, 1)},
  {"d192 short",         kFull,    2048, config_of({192, 192,  64, 3, 2, 1}, false, 3)},
  {"d192",               kAnyMask, 0,    config_of({192, 192,  96, 2, 2, 1}, false, 3)},
  {"d256",               kAnyMask, 0,    config_of({256, 256,  64, 2, 2, 1}, false, 2)},

// 8 bits                                       qk  v   kv  st wgs q  o  raw V stages
  {"d64 8bit short",     kAnyMask, 1024, v8_of({ 64,  64, 128, 2, 2, 2}, 1, 2)},
  {"d64 8bit",           kAnyMask, 4096, v8_of({ 64,  64, 128, 3, 3, 1}, 1, 2)},
  {"d64 8bit masked",    kMasked,  0,    v8_of({ 64,  64, 128, 4, 3, 2}, 1, 0), kFull},
  {"d64 8bit full",      kFull,    0,    v8_of({ 64,  64, 160, 4, 3, 1}, 1, 0)},
  {"d64 8bit two",       kAnyMask, 0,    v8_of({ 64,  64, 224, 2, 2, 2}, 1, 0)},
  {"d96 8bit short",     kAnyMask, 1024, v8_of({ 96,  96, 128, 2, 2, 1}, 1, 2)},
  {"d96 8bit",           kAnyMask, 0,    v8_of({ 96,  96, 192, 2, 2, 1}, 1, 0)},
  {"d128 8bit short",    kAnyMask, 1024, v8_of({128, 128, 128, 2, 2, 1}, 1, 2)},
  {"d128 8bit medium",   kAnyMask, 2048, v8_of({128, 128,  96, 3, 3, 1}, 1, 2)},
  {"d128 8bit three",    kMasked,  0,    v8_of({128, 128,  96, 4, 3, 1}, 1, 0), kFull},
  {"d128 8bit",          kAnyMask, 0,    v8_of({128, 128, 224, 3, 2, 1}, 1, 0)},
  {"d192 8bit short",    kAnyMask, 1024, v8_of({192, 192, 128, 2, 2, 1}, 3, 1)},
  {"d192 8bit",          kAnyMask, 0,    v8_of({192, 192, 160, 2, 2, 1}, 3, 0)},
  {"d256 8bit short",    kAnyMask, 1024, v8_of({256, 256,  96, 2, 2, 1}, 2, 1)},
  {"d256 8bit full",     kFull,    0,    v8_of({256, 256,  96, 3, 2, 1}, 2, 0)},
  {"d256 8bit",          kAnyMask, 0,    v8_of({256, 256, 128, 2, 2, 1}, 2, 0)},
//                                              qk  v   kv  st wgs q  o  flush_columns
  {"d64 8bit flushed",   kAnyMask, 0, flushed_of({ 64,  64,  96, 4, 3, 1}, 1, 64)},
  {"d64 8bit flushed two", kAnyMask, 0, flushed_of({ 64,  64, 128, 4, 2, 2}, 1, 64)},
  {"d128 8bit long",     kAnyMask, 0, parked_of({128, 128,  96, 3, 3, 1}, 2, 8)},  // tiles
  {"d128 8bit flushed",  kAnyMask, 0, flushed_of({128, 128, 128, 3, 2, 1}, 1, 128)},
  {"d256 8bit long",     kNoWindow, 0, flushed_of({256, 256, 96, 3, 2, 1}, 2, 64), 0, true},
  {"d256 8bit flushed",  kAnyMask, 0, flushed_of({256, 256,  64, 3, 2, 1}, 2, 64)},
// 8-bit Q and K                                 qk  v   kv  st wgs q ping_pong o
  {"d64 8bit qk full",   kFull,    0,    qk8_of({ 64,  64, 128, 4, 3, 2}, false, 1)},
  {"d64 8bit qk causal", kCausal,  0,    qk8_of({ 64,  64, 128, 4, 3, 1},  true, 1)},
  {"d64 8bit qk",        kAnyMask, 0,    qk8_of({ 64,  64, 128, 3, 2, 2},  true, 1)},
  {"d128 8bit qk",       kAnyMask, 0,    qk8_of({128, 128,  80, 4, 3, 1},  true, 1)},
  {"d128 8bit qk two",   kAnyMask, 0,    qk8_of({128, 128, 176, 2, 2, 1}, false, 1)},
  {"d192 8bit qk",       kAnyMask, 0,    qk8_of({192, 192, 112, 2, 2, 1}, false, 3)},
  {"d256 8bit qk",       kAnyMask, 0,    qk8_of({256, 256,  80, 2, 2, 1}, false, 2)},
};
// clang-format on

inline constexpr int kSmemLimit = static_cast<int>(kHopperSmemBytes);  // of a CTA

// A row for functors or scales of keys, which keep values per row and key in addition to S, O and
// P: with more tile registers than this, ptxas spills. hides_keys: one of them is a mask.
constexpr FwdConfig with_functors(FwdConfig c, bool hides_keys) {
  while (c.tile_registers() > (hides_keys ? 168 : 176)) {
    if (c.accumulate.flush_columns > 0 && c.tile.kv == 32) {
      c.accumulate.flush_columns /= 2;
    } else {
      c.tile.kv -= c.types.v8() ? 32 : 16;
    }
  }
  return c;
}

// A row whose bits do not depend on the batch: tiles and parts of the same keys in every row, and
// the stages that smaller tiles leave room for.
constexpr FwdConfig with_parts(FwdConfig c) {
  c.tile.stages = c.tile.stages * c.tile.kv / kPartTileKv;
  c.tile.kv = kPartTileKv;
  c.accumulate.part_tiles = kPartTiles;
  c.scores.softmax.per_row = c.scores.softmax.test_first = true;
  return c;
}

inline constexpr MaskTensor kMaskTensors[] = {MaskTensor::kBool, MaskTensor::kF32, MaskTensor::k16};

// A row for attn_mask, of which a tile takes whole words of bits. Where one is added, its tiles
// take the place of a second Q tile, then of keys: read element by element they take longer by more
// than either. Not those of F32 above head dim 64, with which masks of 0 and −∞ took up to 1.5 of
// the time (docs/tuning/mask_sm90.md).
constexpr FwdConfig with_mask(FwdConfig c, MaskTensor mask) {
  c.mask.tensor = mask;
  c.tile.kv = max(c.tile.kv / 32 * 32, 32);
  const bool wide = max(c.tile.head_dim_qk, c.tile.head_dim_v) > 64;
  if (!c.mask.adds_tensor() || (wide && mask == MaskTensor::kF32)) return c;
  for (c.mask.stages = 2; c.smem_bytes() > kSmemLimit;) {
    if (c.mask.stages == 2) {
      c.mask.stages = 1;
    } else if (c.tile.q_stages == 2) {
      c.tile.q_stages = 1;
    } else {
      c.tile.kv -= 32;
    }
  }
  return c;
}

// A row for scales that change every so many columns of head_dim, which other consumers' work
// overlaps with, not a consumer's own: the registers of S are there twice.
constexpr FwdConfig with_columns(FwdConfig c, int columns) {
  c.scores.scale_columns = columns;
  c.overlap.ping_pong = false;
  c.accumulate.flush_columns = min(c.accumulate.flush_columns, min(columns, 64));
  while (c.tile_registers() > 168) {
    if (c.accumulate.flush_columns > 32 && c.tile.kv == 32) {
      c.accumulate.flush_columns = 32;
    } else {
      c.tile.kv -= c.types.v8() ? 32 : 16;
    }
  }
  return c;
}

// ---- Limits -------------------------------------------------------------------------------------

// Beyond these ptxas 13.0 spills and serialises the GEMMs (found by trying). A second part of P·V
// has the registers of S.
constexpr int tile_register_limit(const FwdConfig& c) {
  if (c.tile.consumer_wgs == 3) return c.types.v8() ? 132 : 128;
  return c.pairs_parts() ? 220 : 208;
}

constexpr const char* illegal_types(const FwdTypes& types) {
  if (size_of(types.o) != 2) return "types.o: F16 or BF16";
  const bool e4m3 = types.v == MmaType::kE4m3;
  if (!e4m3 && types.v != types.o) return "types.v: the type of O, or E4M3";
  if (types.qk != types.v && types.qk != MmaType::kS8) return "types.qk: that of V, or INT8";
  return nullptr;
}

constexpr const char* illegal_tile(const FwdConfig& c) {
  const FwdTile& tile = c.tile;
  const int unit = c.columns_unit();
  if (tile.head_dim_qk < 16 || tile.head_dim_qk > 256 || tile.head_dim_qk % unit != 0)
    return "head_dim_qk: a multiple of 16, in 8 bits of 32, up to 256";
  if (tile.head_dim_v < 16 || tile.head_dim_v > 256 || tile.head_dim_v % unit != 0)
    return "head_dim_v: a multiple of 16, in 8 bits of 32, up to 256";
  if (tile.kv < 16 || tile.kv > 256 || tile.kv % (c.types.v8() ? 32 : 16) != 0)
    return "tile.kv: a multiple of 16, with 8-bit V of 32, up to 256";
  if (tile.consumer_wgs < 1 || tile.consumer_wgs > 3) return "consumer_wgs: 1 to 3";
  if (tile.stages < 2)
    return "stages: at least 2, since V of a tile is waited for before the one "
           "ahead of it is released";
  if (c.mask.kind == MaskKind::kWindow && c.skips() && c.most_skipped() > tile.stages)
    return "stages: hold the tiles that the last of three consumers leaves out";
  if (tile.q_stages < 1 || tile.q_stages > 2) return "q_stages: 1 or 2";
  return nullptr;
}

constexpr const char* illegal_load(const FwdConfig& c) {
  if (c.transposes() != (c.load.raw_v_stages > 0))
    return "raw_v_stages: at least 1 where 8-bit V is transposed, else 0";
  if (c.load.v_image && !c.types.v8()) return "v_image: with 8-bit V";
  return nullptr;
}

constexpr const char* illegal_scores(const FwdConfig& c) {
  const FwdScores& scores = c.scores;
  if (scores.block_scales() && (!c.types.scaled() || scores.kind == ScoreKind::kPlain))
    return "kv_scales: finer than a head with 8-bit Q and K and a score function";
  if (scores.block_scales() && c.types.v8() && c.accumulate.flush_columns == 0)
    return "kv_scales: of E4M3 V finer than a head with flush_columns";
  const int columns = scores.scale_columns;
  // Parts of an operand lie in a panel, or begin one.
  if (scores.column_scales() && (!scores.block_scales() || c.tile.head_dim_qk % columns != 0 ||
                                 (columns != 32 && columns != 64 && columns != 128)))
    return "scale_columns: 32, 64 or 128 that divide head_dim_qk, with kv_scales of blocks";
  if (scores.column_scales() && c.types.v8() && columns % c.accumulate.flush_columns != 0)
    return "scale_columns: a multiple of flush_columns";
  if (scores.column_scales() && (c.overlap.ping_pong || c.overlap.ablation()))
    return "scale_columns: no ping_pong; no ablation";
  const SoftmaxVariant& softmax = scores.softmax;
  // Up to 448: the greatest number of E4M3.
  if (softmax.p_log2 != 0 && (!c.types.v8() || softmax.p_log2 < 0 || softmax.p_log2 > 8))
    return "p_log2: up to 8, with 8-bit V only";
  if (softmax.test_first && !softmax.lazy_rescale) return "test_first: takes lazy_rescale";
  if (softmax.per_row != (c.accumulate.part_tiles > 0)) return "per_row: with part_tiles, and they";
  if (softmax.per_row && (!softmax.test_first || c.types.scaled() || c.mask.has_tensor()))
    return "per_row: takes test_first, 16 bits and no attn_mask";
  return nullptr;
}

constexpr const char* illegal_mask(const FwdConfig& c) {
  const FwdMask& mask = c.mask;
  if (mask.has_tensor() &&
      (c.types.scaled() || c.overlap.ablation() || c.tile.kv % 32 != 0 || c.tile.consumer_wgs == 3))
    return "mask.tensor: with 16 bits, at most 2 consumers and a tile.kv of a multiple of 32";
  if (mask.stages != 0 && (!mask.adds_tensor() || mask.stages < 0 || mask.stages > 2))
    return "mask.stages: up to 2, with an attn_mask that is added only";
  if (mask.adds_tensor() && c.scores.kind == ScoreKind::kPlain)
    return "mask.tensor: what is added takes a score function";
  return nullptr;
}

constexpr const char* illegal_accumulate(const FwdConfig& c) {
  const auto& [flush_columns, park_tiles, part_tiles] = c.accumulate;
  if (flush_columns != 0 &&
      (!c.types.v8() || flush_columns % 16 != 0 || c.tile.head_dim_v % flush_columns != 0))
    return "flush_columns: a multiple of 16 that divides head_dim_v, with 8-bit V only";
  if (park_tiles != 0 && (!c.load.v_image || flush_columns != 0 || park_tiles < 0 ||
                          (park_tiles & (park_tiles - 1)) != 0))
    return "park_tiles: a power of two, with v_image and without flush_columns only";
  if (part_tiles != 0 && (part_tiles < 0 || c.types.v8() || c.overlap.ablation()))
    return "part_tiles: with 16 bits; no ablation";
  return nullptr;
}

constexpr const char* illegal_output(const FwdConfig& c) {
  const FwdOutput& output = c.output;
  if (output.in_q && !c.o_fits_q()) return "output.in_q: O is larger than Q";
  if (output.parts < 1 || output.parts > c.o_tile().panels() || (output.in_q && output.parts > 1))
    return "output.parts: 1 to the panels of O; 1 with in_q";
  const SoftmaxVariant& softmax = c.scores.softmax;
  if (output.max_logit != softmax.keeps_greatest)
    return "output.max_logit: with keeps_greatest, and it";
  if (output.max_logit && (!softmax.test_first || softmax.per_row || c.types.scaled()))
    return "output.max_logit: with 16 bits and test_first, without per_row";
  return nullptr;
}

constexpr const char* illegal_overlap(const FwdConfig& c) {
  const FwdOverlap& overlap = c.overlap;
  if (overlap.ping_pong && c.tile.consumer_wgs == 1) return "ping_pong: takes 2 consumers";
  if (c.types.v8() && overlap.ablation()) return "ablation: with 16-bit V only";
  if (!overlap.specialised &&
      (overlap.schedule != FwdSchedule::kOneTile || overlap.step != FwdStep::kTwoStage))
    return "specialised: without it a CTA works on one tile, in two stages";
  return nullptr;
}

// Why a configuration cannot run; nullptr when it can.
constexpr const char* why_illegal(const FwdConfig& c) {
  if (const char* const why = illegal_types(c.types)) return why;
  for (const auto illegal : {illegal_tile, illegal_load, illegal_scores, illegal_mask,
                             illegal_accumulate, illegal_output, illegal_overlap})
    if (const char* const why = illegal(c)) return why;
  if (c.tile_registers() > tile_register_limit(c))
    return "tile.kv, head_dim_v: S, P and O take "
           "more registers than a thread has";
  if (c.smem_bytes() > kSmemLimit) return "tiles and stages: more than 227 KiB of shared memory";
  return nullptr;
}

constexpr bool all_legal() {
  for (const FwdRow& row : kFwdRows) {
    if (why_illegal(row.config) != nullptr) return false;
    if (row.takes(Operands::k16) && why_illegal(with_parts(row.config)) != nullptr) return false;
    if (row.config.tile.consumer_wgs < 3) {
      const FwdConfig least = with_functors(row.config, true);
      if (why_illegal(least) != nullptr) return false;
      for (const MaskTensor mask : kMaskTensors) {
        FwdConfig c = with_mask(least, mask);
        c.scores.kind = ScoreKind::kScaled;
        if (!least.types.scaled() && why_illegal(c) != nullptr) return false;
      }
    }
    if (row.config.types.scaled() && row.config.tile.consumer_wgs < 3 &&
        (!row.config.types.v8() || row.sums() == Sums::kBlocks)) {
      FwdConfig c = with_columns(row.config, 32);
      c.scores.kv_scales = KvScales::kKeys;
      c.scores.kind = ScoreKind::kScaled;
      if (why_illegal(c) != nullptr) return false;
    }
  }
  return true;
}
static_assert(all_legal(), "fwd/configs.h: a row breaks a limit");

}  // namespace fa3::sm90
