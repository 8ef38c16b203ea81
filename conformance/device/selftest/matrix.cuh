// SPDX-License-Identifier: BSD-3-Clause
// matrix.cuh — conformance of ldmatrix, stmatrix and movmatrix: one warp, rows in an order that
// the host chooses.
#pragma once

#include "device/ptx/barrier.h"
#include "device/ptx/matrix.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"

namespace fa3::selftest {

enum class MatrixOp : u8 { kLoad, kStore, kMove };

struct MatrixCase {
  MatrixOp op;
  int matrices;  // 1, 2 or 4
  bool transposed;
};

inline constexpr int kMatrixRows = 32;  // of 16 bytes

struct MatrixArgs {
  const u32* row;  // [32]: the row that each lane gives
  u32* image;      // shared memory, [kMatrixRows][4]: read by loads, written by stores
  u32* registers;  // [matrices][32]: written by loads, read by stores
};

struct MatrixSmem {
  alignas(16) u32 image[kMatrixRows][4];
  FA3_NAMED(image)
};

template <MatrixCase kCase>
FA3_DEV void load_matrices(const MatrixArgs& args, const u32* row, u32 lane) {
  if constexpr (kCase.matrices == 1) {
    const u32 x = kCase.transposed ? ptx::ldmatrix_x1_trans(row) : ptx::ldmatrix_x1(row);
    ptx::st_global(args.registers + lane, x);
  } else if constexpr (kCase.matrices == 2) {
    const auto x = kCase.transposed ? ptx::ldmatrix_x2_trans(row) : ptx::ldmatrix_x2(row);
    for (int i = 0; i < 2; ++i) ptx::st_global(args.registers + 32 * i + lane, x[i]);
  } else {
    const auto x = kCase.transposed ? ptx::ldmatrix_x4_trans(row) : ptx::ldmatrix_x4(row);
    for (int i = 0; i < 4; ++i) ptx::st_global(args.registers + 32 * i + lane, x[i]);
  }
}

template <MatrixCase kCase>
FA3_DEV void store_matrices(u32* row, const u32 (&r)[4]) {
  if constexpr (kCase.matrices == 1) {
    kCase.transposed ? ptx::stmatrix_x1_trans(row, r[0]) : ptx::stmatrix_x1(row, r[0]);
  } else if constexpr (kCase.matrices == 2) {
    const ptx::Vec<u32, 2> x{{r[0], r[1]}};
    kCase.transposed ? ptx::stmatrix_x2_trans(row, x) : ptx::stmatrix_x2(row, x);
  } else {
    const ptx::Vec<u32, 4> x{{r[0], r[1], r[2], r[3]}};
    kCase.transposed ? ptx::stmatrix_x4_trans(row, x) : ptx::stmatrix_x4(row, x);
  }
}

template <MatrixCase kCase>
FA3_KERNEL(32)
void matrix(FA3_GRID_CONSTANT const MatrixArgs args) {
  auto& smem = ptx::smem_as<MatrixSmem>();
  const u32 lane = ptx::lane_index();
  if constexpr (kCase.op == MatrixOp::kMove) {
    ptx::st_global(args.image + lane, ptx::movmatrix(ptx::ld_global(args.registers + lane)));
  } else {
    u32* row = smem.image[ptx::ld_global(args.row + lane)];
    for (int i = 0; i < 4; ++i) {
      ptx::st_shared(&smem.image[lane][i], ptx::ld_global(args.image + 4 * lane + i));
    }
    ptx::warp_sync();
    if constexpr (kCase.op == MatrixOp::kLoad) {
      load_matrices<kCase>(args, row, lane);
    } else {
      u32 r[4];
      for (int i = 0; i < kCase.matrices; ++i) {
        r[i] = ptx::ld_global(args.registers + 32 * i + lane);
      }
      store_matrices<kCase>(row, r);
      ptx::warp_sync();
      for (int i = 0; i < 4; ++i) {
        ptx::st_global(args.image + 4 * lane + i, ptx::ld_shared(&smem.image[lane][i]));
      }
    }
  }
}

}  // namespace fa3::selftest
