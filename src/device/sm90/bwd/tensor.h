// SPDX-License-Identifier: BSD-3-Clause
// tensor.h — elements of tensors of 16 bits or FP32, which the backward reads and writes outside
// its main loop.
#pragma once

#include "device/hopper/operand.h"
#include "device/ptx/convert.h"
#include "device/ptx/memory.h"
#include "device/sm90/bwd/args.h"

namespace fa3::sm90 {

// Two neighbours from an even element on.
template <MmaType kType>
FA3_DEV void store_two(const BwdTensor& to, i64 element, float a, float b) {
  if (to.f32) {
    using Two = ptx::Vec<float, 2>;
    ptx::st_global(reinterpret_cast<Two*>(static_cast<float*>(to.data) + element), Two{{a, b}});
  } else {
    ptx::st_global(reinterpret_cast<u32*>(static_cast<u16*>(to.data) + element),
                   pack16<kType>(a, b));
  }
}

// Eight neighbours of 16 bits.
template <MmaType kType>
FA3_DEV void unpack_eight(const ptx::Vec<u32, 4>& words, float (&to)[8]) {
  FA3_UNROLL
  for (int i = 0; i < 8; ++i) {
    const auto bits = static_cast<u16>(words[i / 2] >> (16 * (i % 2)));
    to[i] = kType == MmaType::kF16 ? ptx::f16_to_f32(bits) : ptx::bf16_to_f32(bits);
  }
}

// Eight neighbours of FP32 from a multiple of 8 on.
FA3_DEV void load_eight_f32(const BwdTensor& from, i64 element, float (&to)[8]) {
  const auto* const at =
      reinterpret_cast<const ptx::Vec<float, 4>*>(static_cast<float*>(from.data) + element);
  FA3_UNROLL
  for (int i = 0; i < 8; ++i) to[i] = ptx::ld_global(at + i / 4)[i % 4];
}

}  // namespace fa3::sm90
