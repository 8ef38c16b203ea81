// SPDX-License-Identifier: BSD-3-Clause
// max_logit.h — the greatest score of a query head, in natural units, which all of its rows raise.
#pragma once

#include "device/attn/conventions.h"
#include "device/ptx/atomic.h"
#include "device/ptx/registers.h"
#include "device/types.h"

namespace fa3::sm90 {

// to: FP32, −∞ before the launch; null = nobody asks.
struct MaxLogitArgs {
  float* to;
  i64 head;  // stride in elements

  FA3_DEV bool asked() const { return to != nullptr; }
  // NaN and −∞ change nothing. Bits of numbers from 0 on are in the order of signed integers, those
  // below in the reverse order of unsigned ones, which also all others precede.
  FA3_DEV void raise(i32 of_head, float score, Where where = Where::here()) const {
    const u32 bits = ptx::bits_as<u32>(score + 0.f);  // −0 becomes 0
    float* const at = to + of_head * head;
    if (score >= 0.f)
      ptx::atom_max_i32(reinterpret_cast<i32*>(at), static_cast<i32>(bits), where);
    else if (score > -kInf)
      ptx::atom_min_u32(reinterpret_cast<u32*>(at), bits, where);
  }
};

}  // namespace fa3::sm90
