// SPDX-License-Identifier: BSD-3-Clause
// precision_test.cpp — fa3_forward_args::precision in the simulator: quantising kernels and forward
// in one plan, with the bits of both by hand, and errors in the order that the recipes promise.
#include "tests/kit/precision.h"

namespace fa3 {
namespace {

kit::Context open(fa3_backend backend) {
  fa3_context_options options = kit::default_options();
  options.backend = backend;
  return kit::make_context(options);
}

class SimPrecision : public kit::PrecisionTest {
 protected:
  SimPrecision() { out = FA3_BF16, rows = {1, 0, 0}; }
};

TEST_F(SimPrecision, IsQuantizeAndForward) {
  const kit::Context sim = open(FA3_BACKEND_SIM);
  for (const int64_t d : {64, 128}) {
    for (const bool cut : {false, true}) {
      varlen = cut;
      for (const fa3_precision precision :
           {FA3_PRECISION_FP8, FA3_PRECISION_EIGHT_BIT, FA3_PRECISION_EIGHT_BIT_ACCURATE})
        expect_quantize_and_forward(d, precision, sim.get());
    }
  }
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
  EXPECT_GT(errors[1], 2 * errors[2]);
  EXPECT_GT(errors[2], 0);
}

}  // namespace
}  // namespace fa3
