// SPDX-License-Identifier: BSD-3-Clause
// variants.h — the kernels that a row of fwd/configs.h stands for: one for each variant when
// they are compiled on demand; fewer and more general ones when they are compiled ahead, as for the
// simulator. Planner, simulator, kernel bundles and tests all use this file.
#pragma once

#include <array>
#include <cstddef>

#include "plan/sm90/fwd/configs.h"

namespace fa3::sm90 {

// Functors that a kernel is compiled with (device/warp/element.h), and attn_mask, which like them
// looks at each score.
struct FwdFunctors {
  bool alibi = false;
  bool sequence_ids = false;
  MaskTensor attn_mask = MaskTensor::kNone;

  constexpr bool has_mask() const { return attn_mask != MaskTensor::kNone; }
  constexpr bool any() const { return alibi || sequence_ids || has_mask(); }
  constexpr bool operator==(const FwdFunctors&) const = default;
};

// What a problem adds to a row at compile time.
struct FwdVariant {
  MmaType dtype = MmaType::kBf16;  // of O, and of all that has 16 bits
  MaskKind mask = MaskKind::kFull;
  ScoreKind score = ScoreKind::kPlain;
  bool ragged = false;
  FwdFunctors functors{};
  Operands operands = Operands::k16;
  KvScales kv_scales = KvScales::kHead;
  bool o_f32 = false;
  int scale_columns = 0;
  KvSource kv = KvSource::kTensor;
  bool by_parts = false;  // bits do not depend on the batch
  bool max_logit = false;

  constexpr bool plain() const {  // FwdRow::plain_only
    return score == ScoreKind::kPlain && kv_scales == KvScales::kHead && !functors.any() && !o_f32;
  }
  constexpr bool operator==(const FwdVariant&) const = default;
};

inline constexpr Operands kOperands[] = {Operands::k16, Operands::kE4m3, Operands::kI8E4m3,
                                         Operands::kI8V16};
inline constexpr MmaType kFwdTypes[] = {MmaType::kBf16, MmaType::kF16};
inline constexpr MaskKind kMasks[] = {MaskKind::kFull, MaskKind::kCausal, MaskKind::kWindow};
// Those of more kernels than a bundle has.
inline constexpr MaskKind kAllMasks[] = {MaskKind::kFull, MaskKind::kCausal, MaskKind::kWindow,
                                         MaskKind::kChunk};
inline constexpr KvScales kKvScales[] = {KvScales::kHead, KvScales::kTiles, KvScales::kKeys};
inline constexpr KvSource kKvSources[] = {KvSource::kTensor, KvSource::kTiles, KvSource::kRuns,
                                          KvSource::kRows};
inline constexpr ScoreKind kScores[] = {ScoreKind::kPlain, ScoreKind::kSoftcap, ScoreKind::kScaled};

// Rows for windows are those for chunks.
constexpr bool takes(const FwdRow& row, MaskKind mask, Operands operands = Operands::k16) {
  if (mask == MaskKind::kChunk) mask = MaskKind::kWindow;
  const bool int8 = operands == Operands::kI8E4m3 || operands == Operands::kI8V16;
  return ((row.masks | (int8 ? row.int8_masks : 0)) & mask_bit(mask)) != 0;
}

// The row for that variant, of the row's own head dims.
constexpr FwdConfig config_of(const FwdRow& row, const FwdVariant& variant) {
  const FwdFunctors& functors = variant.functors;
  const bool by_key = variant.kv_scales == KvScales::kKeys;  // values per key as well
  FwdConfig config = row.config;
  if (variant.by_parts) config = with_parts(config);
  if (functors.any() || by_key)
    config = with_functors(config, functors.sequence_ids || functors.has_mask());
  if (functors.has_mask()) config = with_mask(config, functors.attn_mask);
  config.types.o = variant.dtype;
  if (!config.types.v8()) config.types.v = variant.dtype;
  config.types.qk = variant.operands == Operands::k16     ? variant.dtype
                    : variant.operands == Operands::kE4m3 ? MmaType::kE4m3
                                                          : MmaType::kS8;
  config.mask.kind = variant.mask;
  config.scores.kind = variant.score;
  config.load.ragged = variant.ragged;
  config.load.kv = variant.kv;
  config.scores.kv_scales = variant.kv_scales;
  config.output.f32 = variant.o_f32;
  config.output.in_q = config.output.in_q && !variant.o_f32;
  if (variant.max_logit) {
    config.output.max_logit = true;
    config.scores.softmax.test_first = config.scores.softmax.keeps_greatest = true;
  }
  if (variant.scale_columns > 0) config = with_columns(config, variant.scale_columns);
  return config;
}

// Not worth a kernel of its own where kernels are compiled ahead. 16 bits: FP16, except dense
// without a mask. E4M3: all but dense BF16, full and causal. INT8, O in FP32 and caches: all.
constexpr bool is_rare(const FwdVariant& variant) {
  if (variant.o_f32 || variant.kv != KvSource::kTensor || variant.by_parts || variant.max_logit ||
      variant.mask == MaskKind::kChunk)
    return true;
  const bool f16 = variant.dtype == MmaType::kF16, dense = !variant.ragged;
  switch (variant.operands) {
    case Operands::k16:
      return f16 && !(dense && variant.mask == MaskKind::kFull);
    case Operands::kE4m3:
      return f16 || !(dense && variant.mask != MaskKind::kWindow);
    default:
      return true;
  }
}

// The variant that computes this one where kernels are compiled ahead: softcap, negative scales and
// rare ones run with the widest mask and varlen; functors all together, with a score function, as
// scales of blocks; those of columns key by key, and 64 at a time.
constexpr FwdVariant ahead(FwdVariant variant) {
  if (variant.functors.any()) {
    variant.functors = {true, true, variant.functors.attn_mask};
    if (variant.score == ScoreKind::kPlain) variant.score = ScoreKind::kScaled;
  }
  if (variant.scale_columns > 0) {
    variant.kv_scales = KvScales::kKeys;
    variant.scale_columns = min(variant.scale_columns, 64);
  }
  if (variant.kv_scales != KvScales::kHead && variant.score == ScoreKind::kPlain)
    variant.score = ScoreKind::kScaled;
  if (variant.score != ScoreKind::kPlain || is_rare(variant)) {
    variant.mask = MaskKind::kChunk;
    variant.ragged = true;
  }
  return variant;
}

// Those of a row that are compiled ahead. Functors: for BF16 and two head dims, which is enough to
// execute them; nor has F16 O with 8 bits, or F32 O, every score.
struct FwdVariants {
  std::array<FwdVariant, 40> variant{};
  size_t count = 0;

  constexpr bool has(const FwdVariant& one) const {
    for (size_t i = 0; i < count; ++i) {
      if (variant[i] == one) return true;
    }
    return false;
  }
  constexpr void add(const FwdVariant& one) {
    if (!has(one)) variant[count++] = one;
  }
};
constexpr FwdVariants compiled_ahead(const FwdRow& row) {
  FwdVariants all;
  const int dim = row.config.tile.head_dim_qk;
  if (row.sums() == Sums::kBlocks) {
    for (const KvScales of : {KvScales::kTiles, KvScales::kKeys}) {
      if (of == KvScales::kKeys && (dim != 64 || row.config.tile.consumer_wgs == 3)) continue;
      for (const Operands operands : {Operands::kE4m3, Operands::kI8E4m3})
        for (const ScoreKind score : {ScoreKind::kScaled, ScoreKind::kSoftcap})
          all.add(ahead({MmaType::kBf16, MaskKind::kFull, score, false, {}, operands, of}));
    }
  }
  if (dim >= 128 && row.config.types.scaled() && (row.sums() == Sums::kBlocks || dim == 128)) {
    for (const Operands operands : {Operands::kE4m3, Operands::kI8E4m3, Operands::kI8V16})
      if (row.takes(operands) && (dim == 128 || operands == Operands::kE4m3) &&
          (row.sums() == Sums::kBlocks) == row.config.types.v8())
        all.add(ahead({.operands = operands, .scale_columns = 64}));
  }
  for (const Operands operands : kOperands) {
    if (!row.takes(operands)) continue;
    for (const MmaType dtype : kFwdTypes) {
      for (const MaskKind mask : kMasks) {
        for (const ScoreKind score : kScores) {
          if (operands != Operands::k16 && dtype == MmaType::kF16 && score != ScoreKind::kPlain)
            continue;
          for (const bool ragged : {false, true}) {
            const FwdVariant one{dtype, mask, score, ragged, {}, operands};
            if (takes(row, mask, operands) && (one.plain() || !row.plain_only)) all.add(ahead(one));
          }
        }
      }
    }
  }
  if ((dim == 64 || dim == 128) && dim == row.config.tile.head_dim_v &&
      row.config.tile.consumer_wgs < 3 && row.takes(Operands::k16))
    for (const KvSource kv : {KvSource::kRuns, KvSource::kRows})
      if (kv == KvSource::kRuns || dim == 64) all.add(ahead({.kv = kv}));
  if (dim == 64 && row.config.tile.consumer_wgs == 2 && row.takes(Operands::k16)) {
    all.add(ahead({.by_parts = true}));
    all.add(ahead({.kv = KvSource::kRuns, .by_parts = true}));
    all.add(ahead({.mask = MaskKind::kChunk}));
    for (const ScoreKind score : {ScoreKind::kPlain, ScoreKind::kSoftcap})
      all.add(ahead({.score = score, .max_logit = true}));
  }
  for (const Operands operands : kOperands) {
    if (row.takes(operands) && !row.plain_only)
      all.add(ahead({.operands = operands, .o_f32 = true}));
  }
  if (dim == row.config.tile.head_dim_v && (dim == 64 || dim == 128) &&
      row.config.tile.consumer_wgs < 3 && row.takes(Operands::k16)) {
    for (const ScoreKind score : {ScoreKind::kScaled, ScoreKind::kSoftcap})
      all.add(ahead({MmaType::kBf16, MaskKind::kFull, score, false, {true, true}}));
    // attn_mask: of each type where head dims are least, elsewhere one.
    for (const MaskTensor mask : kMaskTensors) {
      const bool many_rows = row.max_seqlen_q == 0;
      const FwdFunctors functors{true, true, mask};
      if (dim == 64 ? many_rows || mask == MaskTensor::kF32 : many_rows && mask == MaskTensor::kF32)
        all.add(ahead({MmaType::kBf16, MaskKind::kFull, ScoreKind::kScaled, false, functors}));
      if (dim == 64 && many_rows && mask == MaskTensor::kF32)
        all.add(ahead({MmaType::kBf16, MaskKind::kFull, ScoreKind::kSoftcap, false, functors}));
    }
  }
  return all;
}

}  // namespace fa3::sm90
