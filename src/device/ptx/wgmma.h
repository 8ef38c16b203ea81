// SPDX-License-Identifier: BSD-3-Clause
// wgmma.h — the warpgroup's MMA, D = A·B (+ D): 64 rows, N columns, 32 bytes deep; B and
// perhaps A in shared memory. All 128 threads call alike. The GPU's operand lists, one per N, are
// generated (cmake/generate_wgmma.cmake). Sections are those of PTX ISA 9.1.
#pragma once

#include "device/ptx/registers.h"
#include "device/ptx/twin.h"
#include "device/types.h"

#if FA3_GPU
#include "device/ptx/wgmma_shapes.h"
#endif

namespace fa3::ptx {

// wgmma.fence.sync.aligned (9.7.15.7.1): orders this warp's accesses to registers before wgmmas
// that use them. Not a fence of shared memory.
FA3_DEV void wgmma_fence(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
  twin::wgmma_fence(where);
#endif
}

// wgmma.commit_group.sync.aligned (9.7.15.7.2): the wgmmas since the last one form a group.
FA3_DEV void wgmma_commit(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#else
  twin::wgmma_commit(where);
#endif
}

// wgmma.wait_group.sync.aligned (9.7.15.7.3): all but the last kPending groups are complete.
template <int kPending>
FA3_DEV void wgmma_wait(Where where = Where::here()) {
  static_assert(kPending >= 0 && kPending <= 7, "wgmma_wait: 0 to 7 groups");
#if FA3_GPU
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#else
  twin::wgmma_wait(kPending, where);
#endif
}

// No instruction: tells the compiler that the registers change here, so that it keeps accesses to
// them on their side of a wait or fence.
template <int N, class T>
FA3_DEV void fence_regs([[maybe_unused]] Acc<N, T>& acc) {
#if FA3_GPU
  FA3_UNROLL
  for (int i = 0; i < N / 2; ++i) {
    if constexpr (wgmma_shapes::kIsFloat<T>) {
      asm volatile("" : "+f"(acc.r[i])::"memory");
    } else {
      asm volatile("" : "+r"(acc.r[i])::"memory");
    }
  }
#endif
}
FA3_DEV void fence_regs([[maybe_unused]] AFrag& a) {
#if FA3_GPU
  FA3_UNROLL
  for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a.r[i])::"memory");
#endif
}

// The accumulator's type goes with the operands'.
template <MmaType kType>
struct AccElement {
  using Type = float;
};
template <>
struct AccElement<MmaType::kS8> {
  using Type = i32;
};
template <>
struct AccElement<MmaType::kU8> {
  using Type = i32;
};
template <MmaType kType, int N>
using AccFor = Acc<N, typename AccElement<kType>::Type>;

// The instruction that a call stands for; a template, so that every lane passes the same object.
template <MmaType kA, MmaType kB, int N, bool kRegisters, bool kTransposedA, bool kTransposedB>
struct Wgmma {
  static_assert(wgmma_has_types(kA, kB), "wgmma: types of A and B that do not go together");
  static_assert(wgmma_has_columns(kA, N), "wgmma: no instruction of this type has N columns");
  static_assert(size_of(kA) == 2 || !(kTransposedA || kTransposedB),
                "wgmma: only 16-bit operands may be MN-major; transpose in shared memory");

  static constexpr WgmmaInstruction kInstruction{
      kA,           kB,          is_int8(kA) ? AccType::kS32 : AccType::kF32, N, kRegisters,
      kTransposedA, kTransposedB};
};

// wgmma.mma_async.sync.aligned.m64nNkK (9.7.15.5.2), A and B in shared memory behind descriptors.
// `accumulate` false: D = A·B. A transposed operand is MN-major. kB: for mixed FP8 or 8-bit
// integers.
template <MmaType kA, int N, bool kTransposedA = false, bool kTransposedB = false, MmaType kB = kA>
FA3_DEV void wgmma_ss(AccFor<kA, N>& d, u64 a, u64 b, bool accumulate,
                      Where where = Where::here()) {
  using Instruction = Wgmma<kA, kB, N, false, kTransposedA, kTransposedB>;
#if FA3_GPU
  static_assert(Instruction::kInstruction.n == N);
  wgmma_shapes::ss<wgmma_shapes::Text<kA, kB, false, kTransposedA, kTransposedB>>(d, a, b,
                                                                                  accumulate);
#else
  twin::wgmma(Instruction::kInstruction, d.state, d.slots, nullptr, nullptr, a, b, accumulate,
              where);
#endif
}

// wgmma.mma_async.sync.aligned.m64nNkK (9.7.15.5.2), A in registers, B in shared memory.
template <MmaType kA, int N, bool kTransposedB = false, MmaType kB = kA>
FA3_DEV void wgmma_rs(AccFor<kA, N>& d, const AFrag& a, u64 b, bool accumulate,
                      Where where = Where::here()) {
  using Instruction = Wgmma<kA, kB, N, true, false, kTransposedB>;
#if FA3_GPU
  static_assert(Instruction::kInstruction.n == N);
  wgmma_shapes::rs<wgmma_shapes::Text<kA, kB, true, false, kTransposedB>>(d, a, b, accumulate);
#else
  twin::wgmma(Instruction::kInstruction, d.state, d.slots, &a.state, a.slots, 0, b, accumulate,
              where);
#endif
}

}  // namespace fa3::ptx
