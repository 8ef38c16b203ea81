// SPDX-License-Identifier: BSD-3-Clause
// sink.h — attention sinks: a term of a row's sum, as of a key more that has no value. Kernels make
// O and sums without it; whoever stores a finished row adds it (docs/adr/0037).
#pragma once

#include "device/attn/conventions.h"
#include "device/ptx/convert.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/sm90/common/float_type.h"

namespace fa3::sm90 {

// Sinks of the query heads, in natural units.
struct SinkArgs {
  const void* data;  // or null
  FloatType type;

  // −∞: none. One of +∞ is NaN, which it makes of its rows, as a score of +∞ does.
  FA3_DEV float of_head(i32 head) const {
    if (data == nullptr) return -kInf;
    float sink;
    if (type == FloatType::kF32) {
      sink = ptx::ld_global_nc(static_cast<const float*>(data) + head);
    } else {
      const u16 half = ptx::ld_global_nc(static_cast<const u16*>(data) + head);
      sink = type == FloatType::kF16 ? ptx::f16_to_f32(half) : ptx::bf16_to_f32(half);
    }
    return sink == kInf ? kInf - kInf : sink;
  }
};

// A row's sum with its sink, which is so far above what exponents are relative to, in units of
// log2; and what O is then multiplied by. A sink far above all keys makes them ∞ and 0.
struct SumWithSink {
  float sum, inverse;

  FA3_DEV SumWithSink(float of_keys, float sink, float log2)
      : sum(of_keys), inverse(ptx::rcp(of_keys)) {
    if (sink == -kInf) return;
    sum += ptx::ex2(log2);
    inverse = sum == 0.f ? 0.f : ptx::rcp(sum);  // all scores −∞, and nothing left of the sink
  }
};

// Of a row that is merged from parts: exponentials are relative to the largest LSE of a part.
struct MergedSum {
  float most;

  FA3_DEV float log2_of(float sink) const { return (sink - most) * kLog2e; }
  FA3_DEV float lse(float sum) const { return ptx::fma(ptx::lg2(sum), kLn2, most); }
};

// LSE of a row with a sink, which is what the sum is nothing, or ∞, beside.
FA3_DEV float lse_with_sink(bool nothing, float of_sum, float sink) {
  if (sink == -kInf) return nothing ? -kInf : of_sum;
  return nothing || of_sum < sink || of_sum == kInf ? sink : of_sum;
}

}  // namespace fa3::sm90
