// SPDX-License-Identifier: BSD-3-Clause
// column_term.h — a term of each column of D as one more step of its GEMM: A is ones, B the term in
// parts of BF16, whose sum it is. Read by each thread for its columns instead, it passes shared
// memory's pipe eight times over, since eight lanes have the same ones.
//
//   [column / 8][column % 8][8 × BF16]     the parts of half the term, then zeros
//
// B is 16 bytes of K wide, and wgmma takes 32: both halves are the same 16 bytes.
#pragma once

#include "device/hopper/tile_layout.h"
#include "device/ptx/registers.h"
#include "device/ptx/vec.h"
#include "device/ptx/wgmma.h"
#include "device/types.h"

namespace fa3 {

using ColumnTermVec = ptx::Vec<u32, 4>;

// A term as it is to lie there. FP32's 24 bits are three parts of 8; ±∞ and NaN have one.
FA3_HD constexpr ColumnTermVec column_term(float term) {
  const float half = 0.5f * term;
  constexpr u32 kPart = 0xFFFF0000, kNan = 0x7FC00000;
  const auto part = [](float x) { return ptx::bits_as<u32>(x) & kPart; };
  if (!(half - half == 0)) return {{(half == half ? part(half) : kNan) >> 16, 0, 0, 0}};
  const u32 first = part(half);
  const float rest = half - ptx::bits_as<float>(first);
  const u32 second = part(rest);
  const u32 third = part(rest - ptx::bits_as<float>(second));
  return {{first >> 16 | second, third >> 16, 0, 0}};
}

// What was put there.
FA3_HD constexpr float of_column_term(const ColumnTermVec& words) {
  const auto part = [](u32 bits) { return ptx::bits_as<float>(bits & 0xFFFF0000); };
  return 2 * (part(words[0] << 16) + part(words[0]) + part(words[1] << 16));
}

// A, for as long as a GEMM with terms is in flight.
FA3_DEV void set_ones(ptx::AFrag& ones) {
  constexpr u32 kOnes = 0x3F803F80;
  FA3_UNROLL
  for (int i = 0; i < ptx::AFrag::size(); ++i) ones[i] = kOnes;
  ptx::fence_regs(ones);
}

// D += the terms from `address` on, a multiple of 128: a step of a GEMM (gemm_ss). All 128 threads
// call alike.
template <int N>
FA3_DEV void add_terms(ptx::Acc<N>& d, const ptx::AFrag& ones, u32 address,
                       Where where = Where::here()) {
  constexpr u32 kStride = 8 * kColumnTermBytes;
  ptx::wgmma_rs<MmaType::kBf16, N>(
      d, ones, SmemDesc::make(address, 0, kStride, Swizzle::kNone).bits, true, where);
}

}  // namespace fa3
