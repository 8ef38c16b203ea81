// SPDX-License-Identifier: BSD-3-Clause
// kernels.h — the forward kernels by name, for compiling them ahead of time:
//
//   fwd / d128, d192-128 / e4m3, i8_e4m3, i8_16_bits / bf16, f16 / full, causal, window, chunk
//       / dense, ragged / q64 / long, flushed / few_tiles / softcap, scaled / tile_scales,
//       key_scales / columns32, columns64, columns128 / o_f32 / max_logit / alibi / sequence_ids
//       / bool_mask, f32_mask, 16_bit_mask
//
// e4m3: Q, K and V have that type, O the 16-bit one; i8_…: Q and K have INT8, V has the other.
// d is head_dim_qk and, where it differs, head_dim_v, in multiples of 16; q64 is on rows for at
// most that many queries per sequence, long and flushed on those that add up P·V of E4M3 in FP32,
// flushed also for scales of blocks, few_tiles on those for problems that would not fill a GPU with
// the tiles of another row. A name may leave out words, and then means the kernels for every value
// of them; but head dims only those of the table, scores only unmodified ones without functors, and
// operands of 16 bits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "plan/sm90/fwd/plan.h"

namespace fa3::sm90 {

struct FwdKernel {
  std::string name;
  FwdConfig config;
  FwdFunctors functors;
};

// INVALID_ARGUMENT, listing the words there are, for a name that means no kernel.
Result<std::vector<FwdKernel>> fwd_kernels(std::string_view name);

}  // namespace fa3::sm90
