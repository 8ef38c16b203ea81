// SPDX-License-Identifier: BSD-3-Clause
// fwd_row.h — the forward kernel for the host: of one row of the table the variants that are
// compiled ahead. CMake makes a file for each row from fwd_row.cpp.in, so that they compile side by
// side.
#pragma once

#include <type_traits>
#include <utility>

#include "device/sm90/fwd/fwd.cuh"
#include "device/sm90/fwd/v_image.cuh"
#include "device/sm90/mask/mask_bits.cuh"
#include "plan/sm90/fwd/plan.h"
#include "plan/sm90/fwd/variants.h"
#include "plan/sm90/mask/bits_plan.h"
#include "sim/program.h"

namespace fa3::sim {

static_assert(FA3_FWD_ROWS == std::size(sm90::kFwdRows),
              "src/sim/CMakeLists.txt counts the rows of fwd/configs.h by their lines");

template <sm90::FwdConfig kCfg, sm90::FwdFunctors kFunctors>
void add_fwd() {
  using Score = std::conditional_t<kFunctors.alibi, AlibiScore, SameScore>;
  using Mask = std::conditional_t<kFunctors.sequence_ids, SequenceIdMask, EveryKey>;
  const Registration registration(sm90::fwd_expression(kCfg, kFunctors).c_str(),
                                  kernel_of(&sm90::fwd<kCfg, Score, Mask>));
}

template <sm90::VImageConfig kCfg>
void add_v_image() {
  const Registration registration(sm90::v_image_expression(kCfg).c_str(),
                                  kernel_of(&sm90::v_image<kCfg>));
}

// A build that only has to run the code, not every kernel, names the head dim that it keeps.
constexpr bool is_kept([[maybe_unused]] const sm90::FwdRow& row) {
#ifdef FA3_SIM_HEAD_DIM
  return row.config.tile.head_dim_qk == FA3_SIM_HEAD_DIM;
#else
  return true;
#endif
}

// Both images that a kernel with such tiles may load.
template <sm90::FwdConfig kCfg>
void add_v_images() {
  if constexpr (kCfg.load.v_image) {
    add_v_image<sm90::VImageConfig{kCfg.turned_v(), false}>();
    add_v_image<sm90::VImageConfig{kCfg.turned_v(), true}>();
  }
}

template <sm90::MaskBitsConfig kCfg>
void add_mask_bits() {
  const Registration registration(sm90::mask_bits_expression(kCfg).c_str(),
                                  kernel_of(&sm90::mask_bits<kCfg>));
}

template <sm90::FwdConfig kCfg, sm90::FwdFunctors kFunctors>
void add_variant() {
  add_fwd<kCfg, kFunctors>();
  if constexpr (kCfg.mask.has_tensor() && kCfg.scores.kind == ScoreKind::kScaled) {
    constexpr bool kBf16 = kCfg.mask.tensor == MaskTensor::k16 && kCfg.types.o == MmaType::kBf16;
    add_mask_bits<sm90::MaskBitsConfig{kCfg.mask.tensor, kBf16, kCfg.tile.q(), kCfg.tile.kv}>();
  }
  if constexpr (kCfg.scores.column_scales()) add_v_images<kCfg>();  // in tiles of their own
}

template <size_t kRow, size_t... kVariants>
void add_variants(std::index_sequence<kVariants...>) {
  constexpr const sm90::FwdRow& row = sm90::kFwdRows[kRow];
  constexpr sm90::FwdVariants ahead = sm90::compiled_ahead(row);
  (add_variant<sm90::config_of(row, ahead.variant[kVariants]), ahead.variant[kVariants].functors>(),
   ...);
}

template <size_t kRow>
void add_row() {
  constexpr const sm90::FwdRow& row = sm90::kFwdRows[kRow];
  if constexpr (is_kept(row)) {
    add_variants<kRow>(std::make_index_sequence<sm90::compiled_ahead(row).count>());
    add_v_images<row.config>();
  }
}

}  // namespace fa3::sim
