// SPDX-License-Identifier: BSD-3-Clause
// pack.h — a row's values as codes.
#pragma once

#include "device/sm90/quantize/scale.h"

namespace fa3::sm90 {

// Rounded by the addition of a number whose last place is the code's. |y / scale| ≤ 127.
FA3_DEV u32 pack_i8(const float* y, float by) {
  u32 sum[4];
  FA3_UNROLL
  for (int i = 0; i < 4; ++i) sum[i] = ptx::bits_as<u32>(ptx::fma(y[i], by, 0x1.8p23f));
  return ptx::prmt(ptx::prmt(sum[0], sum[1], 0x0040), ptx::prmt(sum[2], sum[3], 0x0040), 0x5410);
}

FA3_DEV u32 pack_codes(const float* y, float by, bool to_i8) {
  return to_i8 ? pack_i8(y, by) : ptx::pack_e4m3(y[0] * by, y[1] * by, y[2] * by, y[3] * by);
}

// Hands write() a function of j that packs piece j of the row, y in units of `unit`, amax not.
template <QuantizeConfig kCfg, class Write>
FA3_DEV void pack_row(const float (&y)[kCfg.turn.values()],
                      const float (&amax)[kCfg.turn.col_blocks()], float unit, const Write& write) {
  constexpr int kBlocks = kCfg.turn.col_blocks();
  float by[kBlocks];
  bool not_a_number = false;
  FA3_UNROLL
  for (int k = 0; k < kBlocks; ++k) {
    by[k] = unit * ptx::rcp(scale_of_block(amax[k], kCfg.to_i8));
    not_a_number = not_a_number || by[k] != by[k];
  }
  const auto pack = [&](int j) {
    const float of_block = by[kCfg.turn.col_block(j)];
    return ptx::Vec<u32, 2>{{pack_codes(y + 8 * j, of_block, kCfg.to_i8),
                             pack_codes(y + 8 * j + 4, of_block, kCfg.to_i8)}};
  };
  if (!kCfg.to_i8 || !not_a_number) return write(pack);
  // A block of INT8 with a NaN says so by its scale; its codes are 0.
  write([&](int j) {
    const float of_block = by[kCfg.turn.col_block(j)];
    return of_block == of_block ? pack(j) : ptx::Vec<u32, 2>{};
  });
}

}  // namespace fa3::sm90
