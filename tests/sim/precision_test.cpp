// SPDX-License-Identifier: BSD-3-Clause
// precision_test.cpp — fa3_forward_args::precision in the simulator: quantising kernels and forward
// in one plan, with the bits of both by hand, errors in the order that the recipes promise, NaN.
#include "tests/kit/precision.h"

#include <limits>

#include "tests/kit/thorough.h"

namespace fa3 {
namespace {

kit::Context open(fa3_backend backend) {
  fa3_context_options options = kit::default_options();
  options.backend = backend;
  return kit::make_context(options);
}

class SimPrecision : public kit::PrecisionTest {
 protected:
  // Sanitized simulators have one head dim.
  SimPrecision() { out = FA3_BF16, rows = {1, 0, 0}, dim = kit::reduction() > 1 ? 64 : 128; }
};

TEST_F(SimPrecision, IsQuantizeAndForward) {
  const kit::Context sim = open(FA3_BACKEND_SIM);
  const int64_t d = dim;
  size_t turn = 0;
  for (const bool cut : {false, true}) {
    varlen = cut;
    for (const fa3_precision precision :
         {FA3_PRECISION_FP8, FA3_PRECISION_EIGHT_BIT, FA3_PRECISION_EIGHT_BIT_ACCURATE})
      if (kit::due(turn++, 2)) expect_quantize_and_forward(d, precision, sim.get());
  }
  if (kit::due(turn, 2)) expect_quantize_and_forward(64, FA3_PRECISION_EIGHT_BIT, sim.get());
}

TEST_F(SimPrecision, NoKeysOrNoQueries) {
  const kit::Context sim = open(FA3_BACKEND_SIM);
  for (const fa3_precision precision : {FA3_PRECISION_FP8, FA3_PRECISION_EIGHT_BIT}) {
    len_q = 30, len_kv = 0;
    fill();
    run(args(precision), sim.get());
    for (const double x : values()) EXPECT_EQ(x, 0);
    for (const float x : lse) EXPECT_EQ(x, -std::numeric_limits<float>::infinity());
    len_q = 0, len_kv = 100;
    fill();
    run(args(precision), sim.get());
  }
}

TEST_F(SimPrecision, NanReachesTheRowsThatSeeItsBlock) {
  const kit::Context sim = open(FA3_BACKEND_SIM);
  len_kv = 80;
  for (const fa3_precision precision : {FA3_PRECISION_FP8, FA3_PRECISION_EIGHT_BIT}) {
    expect_nan_of_query(precision, sim.get());
    expect_nan_of_key(precision, sim.get());
  }
}

// A softcap sees what the mean of K adds.
TEST_F(SimPrecision, Softcap) {
  const kit::Context sim = open(FA3_BACKEND_SIM), reference = open(FA3_BACKEND_REFERENCE);
  fill(3);
  for (size_t i = 0; i < k.size(); ++i)  // a channel that has one
    if (i % static_cast<size_t>(dim) == 5)
      verify::encode(FA3_BF16, 3, reinterpret_cast<uint8_t*>(&k[i]));
  const auto with_softcap = [&](fa3_precision precision) {
    fa3_forward_args a = args(precision);
    a.softcap = 2;
    return a;
  };
  run(with_softcap(FA3_PRECISION_DEFAULT), reference.get());
  const std::vector<double> exact = values();
  const std::vector<float> exact_lse = lse;
  run(with_softcap(FA3_PRECISION_EIGHT_BIT_ACCURATE), sim.get());
  EXPECT_LT(error_to(exact), 0.02);
  for (size_t i = 0; i < lse.size(); ++i) EXPECT_NEAR(lse[i], exact_lse[i], 0.01) << i;
}

// O in BF16 itself is 2^-9 off.
TEST_F(SimPrecision, ErrorsComeInOrder) {
  const kit::Context sim = open(FA3_BACKEND_SIM), reference = open(FA3_BACKEND_REFERENCE);
  len_kv = 1000;
  fill(7);
  run(args(FA3_PRECISION_DEFAULT), reference.get());
  const std::vector<double> exact = values();
  std::vector<double> errors;
  for (const fa3_precision precision :
       {FA3_PRECISION_FP8, FA3_PRECISION_EIGHT_BIT, FA3_PRECISION_EIGHT_BIT_ACCURATE}) {
    run(args(precision), sim.get());
    errors.push_back(error_to(exact));
  }
  EXPECT_LT(errors[0], 0.1);
  EXPECT_GT(errors[0], 1.1 * errors[1]);
  if (dim > 64) {  // else the same
    EXPECT_GT(errors[1], 2 * errors[2]);
  }
  EXPECT_GT(errors[2], 0);
}

}  // namespace
}  // namespace fa3
