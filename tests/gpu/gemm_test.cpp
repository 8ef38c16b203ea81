// SPDX-License-Identifier: BSD-3-Clause
// gemm_test.cpp — the warp-specialised GEMM on a real GPU: TMA, mbarriers, wgmma,
// setmaxnreg, TMA stores. Small integers, so that every sum is exact.
#include "device/selftest/gemm.cuh"

#include "conformance/programs.h"
#include "core/dtype.h"
#include "kit.h"

namespace fa3::gpu {
namespace {

using GpuGemm = GpuTest;

TensorMapSpec matrix(const char* name, void* base, u64 columns, u64 rows, u32 box_columns,
                     u32 box_rows) {
  TensorMapSpec spec;
  spec.name = name;
  spec.base = base;
  spec.rank = 2;
  spec.dim[0] = columns, spec.dim[1] = rows;
  spec.stride_bytes[1] = 2 * columns;
  spec.box[0] = box_columns, spec.box[1] = box_rows;
  spec.swizzle = Swizzle::k128;
  return spec;
}

TEST_F(GpuGemm, SmallIntegers_AreExact) {
  constexpr GemmConfig kConfig{MmaType::kBf16, 256, 3, false, false};
  const Program program = selftest::device_program(
      "device/selftest/gemm.cuh",
      "fa3::gemm<fa3::GemmConfig{fa3::MmaType::kBf16, 256, 3, false, false}>");
  constexpr u32 kM = 4 * 128, kN = 3 * 256, kK = 5 * 64;
  std::vector<u16> a(kM * kK), b(kN * kK), c(kM * kN, 0xffff);
  const auto a_at = [](u32 m, u32 k) { return static_cast<int>((m * 7 + k * 5 + m * k) % 5) - 2; };
  const auto b_at = [](u32 n, u32 k) { return static_cast<int>((n * 3 + k * 11) % 3) - 1; };
  for (u32 m = 0; m < kM; ++m) {
    for (u32 k = 0; k < kK; ++k) a[m * kK + k] = from_double<Bf16>(a_at(m, k)).bits;
  }
  for (u32 n = 0; n < kN; ++n) {
    for (u32 k = 0; k < kK; ++k) b[n * kK + k] = from_double<Bf16>(b_at(n, k)).bits;
  }
  u16* const c_memory = upload(c, "c");
  const auto encode = [&](const TensorMapSpec& spec) {
    const Result<TensorMap> map = runtime_->encode(spec);
    if (!map.ok()) throw std::runtime_error(map.status().message);
    return map.value();
  };
  GemmArgs args{};
  args.a = encode(matrix("a", upload(a, "a"), kK, kM, 64, 128));
  args.b = encode(matrix("b", upload(b, "b"), kK, kN, 64, 256));
  args.c = encode(matrix("c", c_memory, kN, kM, 64, 64));
  args.tiles_k = kK / 64;
  LaunchShape shape;
  shape.grid[0] = kM / 128, shape.grid[1] = kN / 256;
  shape.threads = static_cast<u32>(kConfig.threads());
  shape.smem_bytes = sizeof(GemmSmem<kConfig>);
  for (int repeat = 0; repeat < 20; ++repeat) {
    FA3_EXPECT_OK(runtime_->launch(program, shape, &args, sizeof args));
    FA3_EXPECT_OK(runtime_->synchronize());
    const std::vector<u16> got = download(c_memory, c.size());
    for (u32 m = 0; m < kM; ++m) {
      for (u32 n = 0; n < kN; ++n) {
        int sum = 0;
        for (u32 k = 0; k < kK; ++k) sum += a_at(m, k) * b_at(n, k);
        ASSERT_EQ(got[m * kN + n], from_double<Bf16>(sum).bits) << m << ' ' << n;
      }
      if (repeat > 0) m += 36;  // the first pass looks at every row
    }
  }
}

}  // namespace
}  // namespace fa3::gpu
