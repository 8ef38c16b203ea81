// SPDX-License-Identifier: BSD-3-Clause
// bwd.cpp — the backward kernels that are compiled ahead, for the host.
#include "device/sm90/bwd/bwd.cuh"

#include <utility>

#include "device/sm90/bwd/delta.cuh"
#include "device/sm90/bwd/dq.cuh"
#include "device/sm90/bwd/mask_gradient.cuh"
#include "device/sm90/bwd/sinks.cuh"
#include "device/sm90/mask/mask_bits.cuh"
#include "device/sm90/mask/mask_image.cuh"
#include "plan/sm90/bwd/configs.h"
#include "plan/sm90/bwd/plan.h"
#include "sim/program.h"

namespace fa3::sim {
namespace {

using namespace sm90;

void add(BwdPass pass, const BwdConfig& config, Kernel kernel) {
  BwdPlan plan;
  plan.pass = pass, plan.config = config, plan.gradient = gradient_of(config);
  const Registration registration(program_of(plan).expression.c_str(), std::move(kernel));
}

template <BwdConfig kCfg>
void add_config() {
  static_assert(why_illegal(kCfg) == nullptr);
  if constexpr (kCfg.deterministic) add(BwdPass::kBound, kCfg, kernel_of(&bwd_bound<kCfg>));
  add(BwdPass::kDelta, kCfg, kernel_of(&bwd_delta<kCfg>));
  add(BwdPass::kMain, kCfg, kernel_of(&bwd<kCfg>));
  add(BwdPass::kDq, kCfg, kernel_of(&bwd_dq<kCfg>));
  constexpr bool kBf16 = kCfg.attn_mask == MaskTensor::k16 && kCfg.dtype == MmaType::kBf16;
  if constexpr (kCfg.adds_mask()) {
    constexpr MaskImageConfig kImage{kCfg.attn_mask, kBf16};
    const Registration registration(mask_image_expression(kImage).c_str(),
                                    kernel_of(&mask_image<kImage>));
    add(BwdPass::kMaskGradient, kCfg, kernel_of(&bwd_mask_gradient<gradient_of(kCfg)>));
  } else if constexpr (kCfg.has_mask()) {
    constexpr MaskBitsConfig kBits{kCfg.attn_mask, kBf16, kCfg.tile_q, kCfg.tile_kv()};
    const Registration registration(mask_bits_expression(kBits).c_str(),
                                    kernel_of(&mask_bits<kBits>));
  }
}

template <size_t kRow, int kVariant>
void add_variant() {
  constexpr const BwdRow& row = kBwdRows[kRow];
#ifdef FA3_SIM_HEAD_DIM
  if constexpr (row.config.head_dim_qk != FA3_SIM_HEAD_DIM) return;
#endif
  if constexpr (is_simulated(row, kVariant)) add_config<bwd_variant(row, kVariant)>();
}

template <size_t kRow, int... kVariants>
void add_row(std::integer_sequence<int, kVariants...>) {
  (add_variant<kRow, kVariants>(), ...);
}

template <size_t... kRows>
void add_rows(std::index_sequence<kRows...>) {
  (add_row<kRows>(std::make_integer_sequence<int, kBwdVariants>()), ...);
}

template <bool... kRagged>
void add_sinks() {
  BwdConfig config;
  ((config.ragged = kRagged, add(BwdPass::kSinks, config, kernel_of(&bwd_sinks<kRagged>))), ...);
}

const Registrations added([] {
  add_rows(std::make_index_sequence<std::size(kBwdRows)>());
  add_sinks<false, true>();
});

}  // namespace
}  // namespace fa3::sim
