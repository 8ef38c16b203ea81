// SPDX-License-Identifier: BSD-3-Clause
// quantize.cpp — the quantising kernels that are compiled ahead, for the host.
#include <utility>

#include "device/sm90/quantize/codes.cuh"
#include "device/sm90/quantize/maxima.cuh"
#include "device/sm90/quantize/means.cuh"
#include "device/sm90/quantize/rotated.cuh"
#include "plan/sm90/quantize/configs.h"
#include "plan/sm90/quantize/plan.h"
#include "sim/program.h"

namespace fa3::sim {
namespace {

using namespace sm90;

void add(QuantizePass pass, const QuantizeConfig& config, Kernel kernel, int row_blocks = 1) {
  QuantizePlan plan;
  plan.pass = pass, plan.config = config, plan.row_blocks = row_blocks;
  const Registration registration(program_of(plan).expression.c_str(), std::move(kernel));
}

template <QuantizeConfig kCfg>
void add_codes() {
  add(QuantizePass::kCodes, kCfg, kernel_of(&quantize_codes<kCfg>));
}

template <TurnConfig kTurn, bool kToI8, int kHeads>
void add_rotated() {
  if constexpr (kTurn.rotary != RotaryKind::kNone && kTurn.x != FloatType::kF32) {
    constexpr RotatedConfig kCfg = RotatedConfig::of({kTurn, kToI8, 1}, kHeads);
    add(QuantizePass::kRotated, kCfg.codes, kernel_of(&quantize_rotated<kCfg>), kCfg.row_blocks);
  }
}

template <size_t kTurn, bool kToI8>
void add_of_type() {
  constexpr TurnConfig turn = kTurnsAhead[kTurn];
  add_codes<QuantizeConfig{turn, kToI8, 1}>();
  add_codes<QuantizeConfig{turn, kToI8, 0}>();
  add_rotated<turn, kToI8, 32>();
  if constexpr (RotatedConfig::of({turn}, 1) != RotatedConfig::of({turn}))
    add_rotated<turn, kToI8, 1>();
  [&]<size_t... kRows>(std::index_sequence<kRows...>) {
    (add_codes<QuantizeConfig{turn, kToI8, kBlockRowsAhead[kRows]}>(), ...);
  }
  (std::make_index_sequence<std::size(kBlockRowsAhead)>());
  constexpr QuantizeConfig config{turn, kToI8, 0};
  add(QuantizePass::kMaxima, config, kernel_of(&quantize_maxima<config>));
}

template <size_t kTurn>
void add_turn() {
  constexpr TurnConfig turn = kTurnsAhead[kTurn];
  const QuantizeConfig config{turn};
  add(QuantizePass::kMeans, config, kernel_of(&quantize_means<turn>));
  add_of_type<kTurn, false>();
  add_of_type<kTurn, true>();
}

// As is_kept of fwd_row.h.
constexpr bool is_kept([[maybe_unused]] const TurnConfig& turn) {
#ifdef FA3_SIM_HEAD_DIM
  return turn.head_dim == FA3_SIM_HEAD_DIM;
#else
  return true;
#endif
}

template <size_t kTurn>
void add_kept() {
  if constexpr (is_kept(kTurnsAhead[kTurn])) add_turn<kTurn>();
}

template <size_t... kTurns>
void add_turns(std::index_sequence<kTurns...>) {
  (add_kept<kTurns>(), ...);
}

const Registrations added([] { add_turns(std::make_index_sequence<std::size(kTurnsAhead)>()); });

}  // namespace
}  // namespace fa3::sim
