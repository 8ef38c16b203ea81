// SPDX-License-Identifier: BSD-3-Clause
// gemm.h — a GEMM of two tiles by one warpgroup: a fence, one wgmma per 32 bytes of K, a
// commit. The result may be accessed after gemm_wait. All 128 threads call alike.
#pragma once

#include "device/hopper/descriptor.h"
#include "device/ptx/registers.h"
#include "device/ptx/wgmma.h"
#include "device/types.h"

namespace fa3 {

inline constexpr bool kOverwrite = false;  // D = A·B
inline constexpr bool kAccumulate = true;  // D = A·B + D

// A and B in shared memory: KMajorTile or MnMajorTile. kSteps is K in bytes / 32. `then`: issues
// more steps of it.
template <MmaType kType, int kSteps, int N, class T, class A, class B, class Then>
FA3_DEV void gemm_ss(ptx::Acc<N, T>& d, const A& a, const B& b, bool accumulate, const Then& then,
                     Where where = Where::here()) {
  ptx::fence_regs(d);
  ptx::wgmma_fence(where);
  FA3_UNROLL
  for (int s = 0; s < kSteps; ++s) {
    ptx::wgmma_ss<kType, N, A::kTransposed, B::kTransposed>(d, a.step(s).bits, b.step(s).bits,
                                                            accumulate || s > 0, where);
  }
  then();
  ptx::wgmma_commit(where);
  ptx::fence_regs(d);
}
template <MmaType kType, int kSteps, int N, class T, class A, class B>
FA3_DEV void gemm_ss(ptx::Acc<N, T>& d, const A& a, const B& b, bool accumulate,
                     Where where = Where::here()) {
  gemm_ss<kType, kSteps>(
      d, a, b, accumulate, [] {}, where);
}

// Steps [kFrom, kTo) of K, A in registers, B in shared memory.
template <MmaType kType, int kFrom, int kTo, int kSteps, int N, class T, class B>
FA3_DEV void gemm_rs_steps(ptx::Acc<N, T>& d, ptx::AFrag (&a)[kSteps], const B& b, bool accumulate,
                           Where where = Where::here()) {
  ptx::fence_regs(d);
  FA3_UNROLL
  for (int s = kFrom; s < kTo; ++s) ptx::fence_regs(a[s]);
  ptx::wgmma_fence(where);
  FA3_UNROLL
  for (int s = kFrom; s < kTo; ++s) {
    ptx::wgmma_rs<kType, N, B::kTransposed>(d, a[s], b.step(s).bits, accumulate || s > kFrom,
                                            where);
  }
  ptx::wgmma_commit(where);
  ptx::fence_regs(d);
}
template <MmaType kType, int kSteps, int N, class T, class B>
FA3_DEV void gemm_rs(ptx::Acc<N, T>& d, ptx::AFrag (&a)[kSteps], const B& b, bool accumulate,
                     Where where = Where::here()) {
  gemm_rs_steps<kType, 0, kSteps>(d, a, b, accumulate, where);
}

// Waits until all but the last kPending GEMMs are complete; `acc` belongs to a complete one.
template <int kPending, int N, class T>
FA3_DEV void gemm_wait(ptx::Acc<N, T>& acc, Where where = Where::here()) {
  ptx::wgmma_wait<kPending>(where);
  ptx::fence_regs(acc);
}

}  // namespace fa3
