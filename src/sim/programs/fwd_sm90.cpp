// SPDX-License-Identifier: BSD-3-Clause
// fwd_sm90.cpp — the forward kernel for the host: of every row of the table what plan/fwd_sm90.h
// calls simulated().
#include "device/kernels/fwd_sm90.cuh"

#include <utility>

#include "plan/configs_sm90.h"
#include "plan/fwd_sm90.h"
#include "sim/program.h"

namespace fa3::sim {
namespace {

template <FwdConfig kCfg>
void add() {
  const Registration registration(fwd_expression(kCfg).c_str(), kernel_of(&fwd_sm90<kCfg>));
}

// A row with what a problem decides.
constexpr FwdConfig with(FwdConfig config, MmaType dtype, FwdMask mask, FwdScore score,
                         bool ragged) {
  config.dtype = dtype;
  config.mask = mask;
  config.score = score;
  config.ragged = ragged;
  const bool even = mask == FwdMask::kFull && !ragged;
  config.schedule = even ? FwdSchedule::kStatic : FwdSchedule::kDynamic;
  return config;
}

template <FwdConfig kCfg, FwdMask kMask>
void add_mask() {
  add<with(kCfg, MmaType::kBf16, kMask, FwdScore::kPlain, false)>();
  add<with(kCfg, MmaType::kBf16, kMask, FwdScore::kPlain, true)>();
}

template <FwdConfig kCfg, MmaType kType, FwdScore kScore>
void add_widest() {
  add<with(kCfg, kType, FwdMask::kWindow, kScore, true)>();
}

// Rows of the same tiles for one mask stand in for the others, too: FP16 under a mask and scores
// come with the widest one.
template <size_t kRow>
void add_row() {
  constexpr FwdConfig kCfg = kFwdRows[kRow].config;
  constexpr auto kFits = [](FwdMask mask) {
    return kFwdRows[kRow].mask == kAnyMask || kFwdRows[kRow].mask == static_cast<int>(mask);
  };
  add_widest<kCfg, MmaType::kBf16, FwdScore::kSoftcap>();
  add_widest<kCfg, MmaType::kBf16, FwdScore::kScaled>();
  add_widest<kCfg, MmaType::kF16, FwdScore::kPlain>();
  add_widest<kCfg, MmaType::kF16, FwdScore::kSoftcap>();
  add_widest<kCfg, MmaType::kF16, FwdScore::kScaled>();
  if constexpr (kFits(FwdMask::kCausal)) add_mask<kCfg, FwdMask::kCausal>();
  if constexpr (kFits(FwdMask::kWindow)) add_mask<kCfg, FwdMask::kWindow>();
  if constexpr (kFits(FwdMask::kFull)) {
    add_mask<kCfg, FwdMask::kFull>();
    add<with(kCfg, MmaType::kF16, FwdMask::kFull, FwdScore::kPlain, false)>();
  }
}

// A build that only has to run the code, not every kernel, names the head dim that it keeps.
constexpr bool is_kept([[maybe_unused]] const FwdRow& row) {
#ifdef FA3_SIM_HEAD_DIM
  return row.head_dim_qk == FA3_SIM_HEAD_DIM;
#else
  return true;
#endif
}

template <size_t kRow>
void add_kept_row() {
  if constexpr (is_kept(kFwdRows[kRow])) add_row<kRow>();
}

template <size_t... kRows>
bool add_rows(std::index_sequence<kRows...>) {
  (add_kept_row<kRows>(), ...);
  return true;
}

const bool added = add_rows(std::make_index_sequence<std::size(kFwdRows)>());

}  // namespace
}  // namespace fa3::sim
