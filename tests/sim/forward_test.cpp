// SPDX-License-Identifier: BSD-3-Clause
// forward_test.cpp — a forward schedule in the simulator: right on every seed, on several OS
// threads too, and the same run for the same seed.
#include <cmath>

#include "device/selftest/attention.cuh"
#include "sim/kit.h"

namespace fa3::sim {
namespace {

class SimForward : public ::testing::Test {
 protected:
  static constexpr int kD = 128;

  // Runs q × kv under a seed; returns the largest difference to FP64.
  void run(int q_rows, int kv_rows, u64 first_seed, u64 seeds, u32 workers) {
    Device device;
    device.options.workers = workers;
    Array<u16> q(device, "q", q_rows * kD, true), k(device, "k", kv_rows * kD, true),
        v(device, "v", kv_rows * kD, true), o(device, "o", q_rows * kD);
    Array<float> lse(device, "lse", q_rows);
    std::vector<double> fq(q.size()), fk(k.size()), fv(v.size());
    fill(q, fq, 1), fill(k, fk, 2), fill(v, fv, 3);
    AttentionArgs args{};
    args.q = matrix_map(q.data(), TmaType::kBf16, kD, q_rows, 64, 128, Swizzle::k128);
    args.k = matrix_map(k.data(), TmaType::kBf16, kD, kv_rows, 64, 128, Swizzle::k128);
    args.v = matrix_map(v.data(), TmaType::kBf16, kD, kv_rows, 64, 128, Swizzle::k128);
    args.o = matrix_map(o.data(), TmaType::kBf16, kD, q_rows, 64, 64, Swizzle::k128);
    args.lse = lse.data();
    args.tiles_kv = kv_rows / 128;
    const double scale = 1 / std::sqrt(double{kD});
    args.scale_log2e = static_cast<float>(scale * 1.4426950408889634);
    std::vector<double> expected(o.size()), expected_lse(q_rows);
    reference(fq, fk, fv, scale, expected, expected_lse);
    const LaunchShape shape{{u32(q_rows / 128), 1, 1}, 384, sizeof(AttentionSmem)};
    for (u64 seed = first_seed; seed < first_seed + seeds; seed++) {
      device.options.seed = seed;
      std::memset(o.data(), 0xFF, o.size() * 2);
      const auto violation = violation_of(device, &attention, shape, args);
      ASSERT_FALSE(violation) << violation->what();
      for (size_t i = 0; i < o.size(); i++)
        ASSERT_LE(std::fabs(to_float(Bf16{o[i]}) - expected[i]), 4e-3) << i << " seed " << seed;
      for (int i = 0; i < q_rows; i++)
        ASSERT_LE(std::fabs(lse[i] - expected_lse[i]), 1e-5) << i << " seed " << seed;
    }
  }

 private:
  static void fill(Array<u16>& to, std::vector<double>& values, u64 seed) {
    for (size_t i = 0; i < values.size(); i++) {
      u64 z = (i + 1) * 0x9E3779B97F4A7C15ull * seed;
      z ^= z >> 29;
      z *= 0xBF58476D1CE4E5B9ull;
      const double x = static_cast<double>(z >> 40) / (1 << 23) - 1;  // [−1, 1)
      to[i] = from_double<Bf16>(x).bits;
      values[i] = to_float(Bf16{to[i]});
    }
  }

  static void reference(const std::vector<double>& q, const std::vector<double>& k,
                        const std::vector<double>& v, double scale, std::vector<double>& o,
                        std::vector<double>& lse) {
    const size_t keys = k.size() / kD;
    std::vector<double> p(keys);
    for (size_t i = 0; i < q.size() / kD; i++) {
      double sum = 0;
      for (size_t j = 0; j < keys; j++) {
        double s = 0;
        for (int d = 0; d < kD; d++) s += q[i * kD + d] * k[j * kD + d];
        sum += p[j] = std::exp(s * scale);
      }
      lse[i] = std::log(sum);
      for (int d = 0; d < kD; d++) {
        double out = 0;
        for (size_t j = 0; j < keys; j++) out += p[j] * v[j * kD + d];
        o[i * kD + d] = out / sum;
      }
    }
  }
};

TEST_F(SimForward, OneTile_EverySeed) { run(128, 256, 0, some_of(100), 1); }
TEST_F(SimForward, SeveralCtas) { run(512, 512, 1000, some_of(8), 1); }
TEST_F(SimForward, SeveralThreads) { run(512, 512, 2000, some_of(8), 0); }

}  // namespace
}  // namespace fa3::sim
