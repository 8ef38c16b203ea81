// SPDX-License-Identifier: BSD-3-Clause
// selftest.cpp — the programs of the conformance cases (conformance/), for the host. A unit test
// compares this list with theirs.
#include "device/selftest/convert.cuh"
#include "device/selftest/matrix.cuh"
#include "device/selftest/mbarrier.cuh"
#include "device/selftest/memory.cuh"
#include "device/selftest/mma.cuh"
#include "device/selftest/sync.cuh"
#include "device/selftest/tma.cuh"
#include "device/selftest/warp.cuh"
#include "device/selftest/wgmma.cuh"
#include "sim/program.h"

FA3_SIM_PROGRAM(fa3::selftest::mma<fa3::MmaType::kF16>)
FA3_SIM_PROGRAM(fa3::selftest::mma<fa3::MmaType::kBf16>)

// ---- wgmma --------------------------------------------------------------------------------------

#define FA3_WGMMA(A, B, N, REGISTERS, A_MN, B_MN)                                                 \
  FA3_SIM_PROGRAM(fa3::selftest::wgmma<fa3::selftest::WgmmaCase{fa3::MmaType::A, fa3::MmaType::B, \
                                                                N, REGISTERS, A_MN, B_MN}>)
#define FA3_WGMMA_16BIT(T, N)             \
  FA3_WGMMA(T, T, N, false, false, false) \
  FA3_WGMMA(T, T, N, false, true, false)  \
  FA3_WGMMA(T, T, N, true, false, false)  \
  FA3_WGMMA(T, T, N, false, false, true)  \
  FA3_WGMMA(T, T, N, false, true, true)   \
  FA3_WGMMA(T, T, N, true, false, true)
#define FA3_WGMMA_K_MAJOR(A, B, N)        \
  FA3_WGMMA(A, B, N, false, false, false) \
  FA3_WGMMA(A, B, N, true, false, false)

FA3_WGMMA_16BIT(kBf16, 8)
FA3_WGMMA_16BIT(kBf16, 64)
FA3_WGMMA_16BIT(kBf16, 96)
FA3_WGMMA_16BIT(kBf16, 128)
FA3_WGMMA_16BIT(kBf16, 176)
FA3_WGMMA_16BIT(kBf16, 256)
FA3_WGMMA_16BIT(kF16, 64)
FA3_WGMMA_16BIT(kF16, 176)
FA3_WGMMA_16BIT(kF16, 256)
FA3_WGMMA_K_MAJOR(kTf32, kTf32, 8)
FA3_WGMMA_K_MAJOR(kTf32, kTf32, 64)
FA3_WGMMA_K_MAJOR(kTf32, kTf32, 256)
FA3_WGMMA_K_MAJOR(kE4m3, kE4m3, 8)
FA3_WGMMA_K_MAJOR(kE4m3, kE4m3, 64)
FA3_WGMMA_K_MAJOR(kE4m3, kE4m3, 96)
FA3_WGMMA_K_MAJOR(kE4m3, kE4m3, 128)
FA3_WGMMA_K_MAJOR(kE4m3, kE4m3, 176)
FA3_WGMMA_K_MAJOR(kE4m3, kE4m3, 256)
FA3_WGMMA_K_MAJOR(kE5m2, kE5m2, 64)
FA3_WGMMA_K_MAJOR(kE5m2, kE5m2, 256)
FA3_WGMMA_K_MAJOR(kE4m3, kE5m2, 96)
FA3_WGMMA_K_MAJOR(kE5m2, kE4m3, 96)
FA3_WGMMA_K_MAJOR(kS8, kS8, 8)
FA3_WGMMA_K_MAJOR(kS8, kS8, 24)
FA3_WGMMA_K_MAJOR(kS8, kS8, 64)
FA3_WGMMA_K_MAJOR(kS8, kS8, 96)
FA3_WGMMA_K_MAJOR(kS8, kS8, 128)
FA3_WGMMA_K_MAJOR(kS8, kS8, 176)
FA3_WGMMA_K_MAJOR(kS8, kS8, 256)
FA3_WGMMA_K_MAJOR(kU8, kU8, 64)
FA3_WGMMA_K_MAJOR(kU8, kU8, 256)
FA3_WGMMA_K_MAJOR(kS8, kU8, 96)
FA3_WGMMA_K_MAJOR(kU8, kS8, 96)

// The columns that are left.
#define FA3_WGMMA_REST(N)                         \
  FA3_WGMMA(kBf16, kBf16, N, false, false, false) \
  FA3_WGMMA(kBf16, kBf16, N, true, false, true)
#define FA3_WGMMA_REST_S8(N) \
  FA3_WGMMA_REST(N)          \
  FA3_WGMMA(kS8, kS8, N, false, false, false)
FA3_WGMMA_REST_S8(16)
FA3_WGMMA_REST(24)
FA3_WGMMA_REST_S8(32)
FA3_WGMMA_REST(40)
FA3_WGMMA_REST_S8(48)
FA3_WGMMA_REST(56)
FA3_WGMMA_REST(72)
FA3_WGMMA_REST_S8(80)
FA3_WGMMA_REST(88)
FA3_WGMMA_REST(104)
FA3_WGMMA_REST_S8(112)
FA3_WGMMA_REST(120)
FA3_WGMMA_REST(136)
FA3_WGMMA_REST_S8(144)
FA3_WGMMA_REST(152)
FA3_WGMMA_REST_S8(160)
FA3_WGMMA_REST(168)
FA3_WGMMA_REST(184)
FA3_WGMMA_REST_S8(192)
FA3_WGMMA_REST(200)
FA3_WGMMA_REST_S8(208)
FA3_WGMMA_REST(216)
FA3_WGMMA_REST_S8(224)
FA3_WGMMA_REST(232)
FA3_WGMMA_REST_S8(240)
FA3_WGMMA_REST(248)

// ---- TMA ----------------------------------------------------------------------------------------

#define FA3_TMA(RANK)                                    \
  FA3_SIM_PROGRAM(fa3::selftest::tma_load<RANK>)         \
  FA3_SIM_PROGRAM(fa3::selftest::tma_multicast<RANK>)    \
  FA3_SIM_PROGRAM(fa3::selftest::tma_store<RANK, false>) \
  FA3_SIM_PROGRAM(fa3::selftest::tma_store<RANK, true>)
FA3_TMA(2)
FA3_TMA(3)
FA3_TMA(4)
FA3_TMA(5)

// ---- mbarriers, matrices, warps -----------------------------------------------------------------

FA3_SIM_PROGRAM(fa3::selftest::mbar_script)
FA3_SIM_PROGRAM(fa3::selftest::mbar_ring)

#define FA3_MATRIX(OP, MATRICES, TRANSPOSED)                                                   \
  FA3_SIM_PROGRAM(fa3::selftest::matrix<fa3::selftest::MatrixCase{fa3::selftest::MatrixOp::OP, \
                                                                  MATRICES, TRANSPOSED}>)
#define FA3_MATRICES(OP)   \
  FA3_MATRIX(OP, 1, false) \
  FA3_MATRIX(OP, 1, true)  \
  FA3_MATRIX(OP, 2, false) \
  FA3_MATRIX(OP, 2, true)  \
  FA3_MATRIX(OP, 4, false) \
  FA3_MATRIX(OP, 4, true)
FA3_MATRICES(kLoad)
FA3_MATRICES(kStore)
FA3_MATRIX(kMove, 1, true)

FA3_SIM_PROGRAM(fa3::selftest::shuffle<fa3::selftest::ShuffleKind::kIndex>)
FA3_SIM_PROGRAM(fa3::selftest::shuffle<fa3::selftest::ShuffleKind::kXor>)
FA3_SIM_PROGRAM(fa3::selftest::shuffle<fa3::selftest::ShuffleKind::kUp>)
FA3_SIM_PROGRAM(fa3::selftest::shuffle<fa3::selftest::ShuffleKind::kDown>)
FA3_SIM_PROGRAM(fa3::selftest::vote)

// ---- Memory and synchronisation -----------------------------------------------------------------

FA3_SIM_PROGRAM(fa3::selftest::bulk)
FA3_SIM_PROGRAM(fa3::selftest::cp_async)
FA3_SIM_PROGRAM(fa3::selftest::atomics)
FA3_SIM_PROGRAM(fa3::selftest::named_barriers)
FA3_SIM_PROGRAM(fa3::selftest::cluster)
FA3_SIM_PROGRAM(fa3::selftest::dependent)

// ---- Conversions and arithmetic -----------------------------------------------------------------

#define FA3_CONVERT(FUNCTION) \
  FA3_SIM_PROGRAM(fa3::selftest::convert<fa3::selftest::Function::FUNCTION>)
FA3_CONVERT(kPackF16)
FA3_CONVERT(kPackBf16)
FA3_CONVERT(kPackE4m3)
FA3_CONVERT(kPackE5m2)
FA3_CONVERT(kF16ToF32)
FA3_CONVERT(kBf16ToF32)
FA3_CONVERT(kE4m3x2ToF16x2)
FA3_CONVERT(kE5m2x2ToF16x2)
FA3_CONVERT(kEx2)
FA3_CONVERT(kLg2)
FA3_CONVERT(kRcp)
FA3_CONVERT(kTanh)
FA3_CONVERT(kFma)
FA3_CONVERT(kMax)
FA3_CONVERT(kMin)
FA3_CONVERT(kMaxNan)
FA3_CONVERT(kPrmt)
FA3_CONVERT(kClz)
