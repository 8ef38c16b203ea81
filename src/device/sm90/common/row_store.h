// SPDX-License-Identifier: BSD-3-Clause
// row_store.h — the rows of O and LSE that a thread holds, written straight from registers. `Rows`
// says which rows of the tensors these are: RowPair, rows of one head. A kernel whose tiles hold
// rows of several heads has a type of its own with the same two functions.
// Strides and extents come by reference, so that they are read where they are used: registers are
// scarce behind the main loop.
#pragma once

#include "device/hopper/operand.h"
#include "device/ptx/memory.h"
#include "device/ptx/registers.h"
#include "device/ptx/thread.h"
#include "device/ptx/vec.h"
#include "device/ptx/warp.h"
#include "device/types.h"

namespace fa3::sm90 {

// A thread's two rows of a tile of one head, 8 apart.
struct RowPair {
  i32 row, rows;  // the first of the two; how many rows the sequence has

  FA3_DEV bool exists(int h) const { return row + 8 * h < rows; }
  // From where the first row lies to row h.
  FA3_DEV i64 offset(int h, const i64& stride) const { return 8 * h * stride; }
};

// lse(h): LSE of row h. One thread of each quad.
template <class Rows, class F>
FA3_DEV void store_lse(float* to, const i64& stride, const Rows& rows, const F& lse) {
  FA3_UNROLL
  for (int h = 0; h < 2; ++h) {
    if (!rows.exists(h)) continue;
    const float value = lse(h);
    ptx::st_global(to + rows.offset(h, stride), value);
  }
}

// O in FP32 from the thread's first column on, of which the tensor has `columns` of the tile's. Two
// neighbours at a time: a quad writes 32 bytes of a row.
template <class Rows, int N>
FA3_DEV void store_o_f32(float* to, const i64& stride, const Rows& rows, const ptx::Acc<N>& o,
                         const i32& columns) {
  using Two = ptx::Vec<float, 2>;
  FA3_UNROLL
  for (int h = 0; h < 2; ++h) {
    if (!rows.exists(h)) continue;
    FA3_UNROLL
    for (int column = 0; column < N; column += 8) {
      if (column >= columns) break;
      const int i = column / 2 + 2 * h;
      ptx::st_global(reinterpret_cast<Two*>(to + rows.offset(h, stride) + column),
                     Two{{o[i], o[i + 1]}});
    }
  }
}

// O in 16 bits from the tile's first column on, by all lanes. Even and odd lanes of a quad take
// turns at blocks of 8 columns, so that each writes 4 neighbours and a quad 32 bytes of a row.
template <MmaType kType, class Rows, int N>
FA3_DEV void store_o_16(u16* to, const i64& stride, const Rows& rows, const ptx::Acc<N>& o,
                        const i32& columns) {
  using Two = ptx::Vec<u32, 2>;
  const u32 lane = ptx::lane_index();
  const bool odd = lane % 2 != 0;
  FA3_UNROLL
  for (int h = 0; h < 2; ++h) {
    FA3_UNROLL
    for (int block = 0; block < N / 8; block += 2) {
      const int i = 4 * block + 2 * h;
      const u32 even_block = pack16<kType>(o[i], o[i + 1]);
      const u32 odd_block = pack16<kType>(o[i + 4], o[i + 5]);
      const u32 other = ptx::shfl_xor(odd ? even_block : odd_block, 1);
      const Two four = odd ? Two{{other, odd_block}} : Two{{even_block, other}};
      const i32 column = 8 * (block + (odd ? 1 : 0)) + 4 * static_cast<i32>(lane % 4 / 2);
      if (rows.exists(h) && column < columns)
        ptx::st_global(reinterpret_cast<Two*>(to + rows.offset(h, stride) + column), four);
    }
  }
}

// O · inverse of each row's sum, and 0 in rows that saw nothing.
template <int N>
FA3_DEV void normalise_rows(ptx::Acc<N>& o, const float (&inverse)[2], const bool (&nothing)[2]) {
  FA3_UNROLL
  for (int i = 0; i < N / 2; ++i) {
    const int h = i / 2 % 2;
    o[i] = nothing[h] ? 0.f : o[i] * inverse[h];
  }
}

}  // namespace fa3::sm90
