// SPDX-License-Identifier: BSD-3-Clause
// decode.cpp — the decode kernels for the host.
#include "device/sm90/decode/decode.cuh"

#include <iterator>
#include <utility>

#include "device/sm90/decode/combine.cuh"
#include "plan/sm90/decode/configs.h"
#include "plan/sm90/decode/plan.h"
#include "sim/program.h"

namespace fa3::sim {
namespace {

using namespace sm90;

template <DecodeConfig kCfg>
void add() {
  constexpr CombineConfig kCombine = combine_of(kCfg);
  const Registration decoding(decode_expression(kCfg).c_str(), kernel_of(&decode<kCfg>));
  const Registration combining(combine_expression(kCombine).c_str(), kernel_of(&combine<kCombine>));
}

// A build that only has to run the code, not every kernel, names the head dim that it keeps.
constexpr bool is_kept([[maybe_unused]] const DecodeConfig& config) {
#ifdef FA3_SIM_HEAD_DIM
  return config.head_dim_qk == FA3_SIM_HEAD_DIM;
#else
  return true;
#endif
}

template <size_t kIndex>
void add_if_kept() {
  if constexpr (is_kept(kDecodeAhead[kIndex])) add<kDecodeAhead[kIndex]>();
}

template <size_t... kIndex>
void add_all(std::index_sequence<kIndex...>) {
  (add_if_kept<kIndex>(), ...);
}

const Registrations added([] { add_all(std::make_index_sequence<std::size(kDecodeAhead)>()); });

}  // namespace
}  // namespace fa3::sim
