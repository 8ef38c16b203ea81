// SPDX-License-Identifier: BSD-3-Clause
// gemm_test.cpp — the warp-specialised GEMM runs on every seed and gives the right
// product.
#include "device/selftest/gemm.cuh"

#include "sim/kit.h"

namespace fa3::sim {
namespace {

constexpr GemmConfig kSs{MmaType::kBf16, 128, 3, false, false};
constexpr GemmConfig kSsMn{MmaType::kBf16, 128, 2, true, false};
constexpr GemmConfig kRs{MmaType::kBf16, 128, 2, false, true};

template <GemmConfig kCfg>
void run(u64 seeds) {
  constexpr int kM = 128, kN = kCfg.tile_n, kK = 320;
  Device device;
  Array<u16> a(device, "a", kM * kK, true), b(device, "b", kN * kK, true), c(device, "c", kM * kN);
  std::vector<float> fa(kM * kK), fb(kN * kK);
  for (int i = 0; i < kM * kK; i++) a[i] = from_double<Bf16>(fa[i] = (i * 7 + i / 13) % 9 - 4).bits;
  for (int n = 0; n < kN; n++)
    for (int k = 0; k < kK; k++) {
      const int at = kCfg.b_rows_along_n ? k * kN + n : n * kK + k;
      b[at] = from_double<Bf16>(fb[n * kK + k] = (n * 5 + k * 3) % 7 - 3).bits;
    }
  GemmArgs args{};
  args.a = matrix_map(a.data(), TmaType::kBf16, kK, kM, 64, 128, Swizzle::k128);
  args.b = kCfg.b_rows_along_n
               ? matrix_map(b.data(), TmaType::kBf16, kN, kK, 64, 64, Swizzle::k128)
               : matrix_map(b.data(), TmaType::kBf16, kK, kN, 64, kN, Swizzle::k128);
  args.c = matrix_map(c.data(), TmaType::kBf16, kN, kM, 64, 64, Swizzle::k128);
  args.tiles_k = kK / 64;
  const LaunchShape shape{{1, 1, 1}, u32(kCfg.threads()), sizeof(GemmSmem<kCfg>)};
  for (u64 seed = 0; seed < seeds; seed++) {
    device.options.seed = seed;
    std::memset(c.data(), 0xFF, kM * kN * 2);
    const auto violation = violation_of(device, &gemm<kCfg>, shape, args);
    ASSERT_FALSE(violation) << violation->what();
    for (int m = 0; m < kM; m++)
      for (int n = 0; n < kN; n++) {
        float sum = 0;
        for (int k = 0; k < kK; k++) sum += fa[m * kK + k] * fb[n * kK + k];
        ASSERT_EQ(c[m * kN + n], from_double<Bf16>(sum).bits) << m << ' ' << n << " seed " << seed;
      }
  }
}

TEST(SimGemm, SharedOperands_EverySeed) { run<kSs>(some_of(100)); }
TEST(SimGemm, TransposedB_EverySeed) { run<kSsMn>(some_of(100)); }
TEST(SimGemm, RegisterA_EverySeed) { run<kRs>(some_of(100)); }

}  // namespace
}  // namespace fa3::sim
