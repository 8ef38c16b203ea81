// SPDX-License-Identifier: BSD-3-Clause
// chain8_test.cpp — FP8 operands made from accumulators and by transposing through registers arrive
// in the right order, on every seed.
#include "device/selftest/chain8.cuh"

#include "sim/kit.h"

namespace fa3::sim {
namespace {

template <bool kTransposed>
void run(u64 seeds) {
  constexpr int kRows = 64, kKv = 64, kDim = 128;
  Device device;
  Array<u8> q(device, "q", kRows * kDim, true), k(device, "k", kKv * kDim, true),
      v(device, "v", kKv * kDim, true);
  Array<float> o(device, "o", kRows * kDim);
  // Small integers that E4M3 has, and so few in K that the scores stay below 16.
  const auto e4m3 = [](int value) { return static_cast<u8>(ptx::pack_e4m3(value, 0, 0, 0)); };
  std::vector<int> iq(q.size()), ik(k.size(), 0), iv(v.size());
  for (int i = 0; i < kRows * kDim; ++i) q[i] = e4m3(iq[i] = (i * 5 + i / 7) % 5 - 2);
  for (int i = 0; i < kKv * 4; ++i) ik[i / 4 * kDim + (i * 37 + i / 11) % kDim] = i % 3 - 1;
  for (int i = 0; i < kKv * kDim; ++i) k[i] = e4m3(ik[i]);
  for (int i = 0; i < kKv * kDim; ++i) {
    const int at = kTransposed ? i % kDim * kKv + i / kDim : i;
    v[at] = e4m3(iv[i] = (i * 3 + i / 17) % 15 - 7);
  }
  Chain8Args args{};
  args.q = matrix_map(q.data(), TmaType::kU8, kDim, kRows, kDim, kRows, Swizzle::k128);
  args.k = matrix_map(k.data(), TmaType::kU8, kDim, kKv, kDim, kKv, Swizzle::k128);
  args.v = kTransposed ? matrix_map(v.data(), TmaType::kU8, kKv, kDim, kKv, kDim, Swizzle::k64)
                       : matrix_map(v.data(), TmaType::kU8, kDim, kKv, kDim, kKv, Swizzle::k128);
  args.o = o.data();
  std::vector<int> want(kRows * kDim, 0);
  for (int row = 0; row < kRows; ++row) {
    for (int kv = 0; kv < kKv; ++kv) {
      int score = 0;
      for (int d = 0; d < kDim; ++d) score += iq[row * kDim + d] * ik[kv * kDim + d];
      ASSERT_LE(std::abs(score), 16);
      for (int d = 0; d < kDim; ++d) want[row * kDim + d] += score * iv[kv * kDim + d];
    }
  }
  for (u64 seed = 0; seed < seeds; ++seed) {
    device.options.seed = seed;
    std::memset(static_cast<void*>(o.data()), 0xFF, o.size() * sizeof(float));
    const auto violation = violation_of(device, &chain8<kTransposed>,
                                        LaunchShape{{1, 1, 1}, 128, sizeof(Chain8Smem)}, args);
    ASSERT_FALSE(violation) << violation->what();
    for (int i = 0; i < kRows * kDim; ++i) {
      ASSERT_EQ(o[i], want[i]) << "row " << i / kDim << ", d " << i % kDim << ", seed " << seed;
    }
  }
}

TEST(SimChain8, TransposedInRegisters_EverySeed) { run<false>(100); }
TEST(SimChain8, GivenTransposed_EverySeed) { run<true>(100); }

}  // namespace
}  // namespace fa3::sim
