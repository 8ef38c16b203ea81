// SPDX-License-Identifier: BSD-3-Clause
// registers.h — the register arrays of wgmma, and how many registers a warp may have. On a GPU the
// arrays are ordinary and every index constant; the simulator sees each access. Sections are those
// of PTX ISA 9.1.
#pragma once

#include "device/ptx/mma_types.h"
#include "device/ptx/twin.h"
#include "device/types.h"

namespace fa3::ptx {

// A thread's part of a 64 × N accumulator: float, or i32 for integer operands. Register i lies at
// row 16 (warp in warpgroup) + lane/4 + 8 ((i/2) % 2), column 8 (i/4) + 2 (lane%4) + i%2
// (9.7.15.5.1.1).
template <int N, class T = float>
class Acc {
 public:
  static_assert(N >= 8 && N <= 256 && N % 8 == 0, "Acc: N columns, a multiple of 8 up to 256");
  static_assert(sizeof(T) == 4, "Acc: T is float or i32");

  FA3_HD static constexpr int size() { return N / 2; }

#if FA3_GPU
  FA3_DEV T& operator[](int i) { return r[i]; }
  FA3_DEV T operator[](int i) const { return r[i]; }
  FA3_DEV void zero(Where = Where::here()) {
    FA3_UNROLL
    for (int i = 0; i < N / 2; ++i) r[i] = T(0);
  }

  T r[N / 2];
#else
  T& operator[](twin::Index i) {
    state.touch(i.where);
    return slots[twin::accumulator_slot(i.value, N)];
  }
  T operator[](twin::Index i) const {
    state.touch(i.where);
    return slots[twin::accumulator_slot(i.value, N)];
  }
  void zero(Where where = Where::here()) {
    state.touch(where);
    for (T& slot : slots) slot = T(0);
  }

  mutable twin::RegisterState state;  // reading is an access too
  alignas(64) T slots[N / 2];         // in the order of twin::accumulator_slot
#endif
};

// A thread's part of a 64-row, 32-byte-deep A operand: 8 16-bit or 16 8-bit values in 4 registers.
class AFrag {
 public:
  FA3_HD static constexpr int size() { return 4; }

#if FA3_GPU
  FA3_DEV u32& operator[](int i) { return r[i]; }
  FA3_DEV u32 operator[](int i) const { return r[i]; }

  u32 r[4];
#else
  u32& operator[](twin::Index i) {
    state.touch(i.where);
    return slots[i.value];
  }
  u32 operator[](twin::Index i) const {
    state.touch(i.where);
    return slots[i.value];
  }

  mutable twin::RegisterState state;
  alignas(16) u32 slots[4];
#endif
};

// setmaxnreg.inc.sync.aligned.u32 (9.7.19.5): waits until the CTA has registers to spare. All warps
// of the warpgroup.
template <int kCount>
FA3_DEV void reg_increase(Where where = Where::here()) {
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0,
                "reg_increase: a multiple of 8, 24 to 256");
#if FA3_GPU
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount) : "memory");
#else
  twin::setmaxnreg(kCount, true, where);
#endif
}

// setmaxnreg.dec.sync.aligned.u32 (9.7.19.5): gives registers back. All warps of the warpgroup.
template <int kCount>
FA3_DEV void reg_decrease(Where where = Where::here()) {
  static_assert(kCount >= 24 && kCount <= 256 && kCount % 8 == 0,
                "reg_decrease: a multiple of 8, 24 to 256");
#if FA3_GPU
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount) : "memory");
#else
  twin::setmaxnreg(kCount, false, where);
#endif
}

}  // namespace fa3::ptx
