// SPDX-License-Identifier: BSD-3-Clause
// mma.cpp — mma.sync of 16 × 8 × 16 (PTX ISA 9.7.14.5.8), of integers whose sums are exact.
#include "device/selftest/mma.cuh"

#include <fmt/core.h>

#include "conformance/cases/cases.h"
#include "core/dtype.h"

namespace fa3::selftest {
namespace {

u32 bits_of(MmaType type, double x) {
  return type == MmaType::kF16 ? from_double<F16>(x).bits : from_double<Bf16>(x).bits;
}

Experiment make(MmaType type, Random& random) {
  double a[16][16], b[16][8], d[16][8];
  for (auto& row : a)
    for (double& x : row) x = random.integer(-8, 8);
  for (auto& row : b)
    for (double& x : row) x = random.integer(-8, 8);
  for (auto& row : d)
    for (double& x : row) x = random.integer(-1000, 1000);
  std::vector<u32> of_a(128), of_b(64);
  std::vector<float> before(128), after(128);
  for (size_t lane = 0; lane < 32; ++lane) {
    const size_t g = lane / 4, q = 2 * (lane % 4);
    for (size_t r = 0; r < 4; ++r)
      for (size_t half = 0; half < 2; ++half)
        of_a[32 * r + lane] |= bits_of(type, a[g + 8 * (r % 2)][q + half + 8 * (r / 2)])
                               << (16 * half);
    for (size_t r = 0; r < 2; ++r)
      for (size_t half = 0; half < 2; ++half)
        of_b[32 * r + lane] |= bits_of(type, b[q + half + 8 * r][g]) << (16 * half);
    for (size_t i = 0; i < 4; ++i) {
      const size_t row = g + 8 * (i / 2), column = q + i % 2;
      double sum = d[row][column];
      before[32 * i + lane] = static_cast<float>(sum);
      for (size_t k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      after[32 * i + lane] = static_cast<float>(sum);
    }
  }
  Experiment experiment;
  experiment.shape.threads = 32;
  experiment.buffers = {{"a", to_bytes(of_a), {}},
                        {"b", to_bytes(of_b), {}},
                        {"d", to_bytes(before), Expected{4, to_bytes(after)}}};
  experiment.args = [](const Placed& placed) {
    return bytes_of(MmaArgs{placed.at<u32>(0), placed.at<u32>(1), placed.at<float>(2)});
  };
  return experiment;
}

}  // namespace

void add_mma_cases(std::vector<Case>& cases) {
  for (const auto& [type, name, word] :
       {std::tuple(MmaType::kF16, "kF16", "f16"), std::tuple(MmaType::kBf16, "kBf16", "bf16")}) {
    cases.push_back({fmt::format("mma/16x8x16/{}", word),
                     device_program("device/selftest/mma.cuh",
                                    fmt::format("fa3::selftest::mma<fa3::MmaType::{}>", name)),
                     [type = type](Random& random) { return make(type, random); }});
  }
}

}  // namespace fa3::selftest
