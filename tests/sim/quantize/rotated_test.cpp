// SPDX-License-Identifier: BSD-3-Clause
// rotated_test.cpp — a CTA that codes many tiles of rotated rows, whose barriers all go round a few
// times, breaks no rule and has the same bits under every schedule of the simulator; nor does it
// touch anything outside of the tensors, whatever their lengths are.
#include <gmock/gmock.h>

#include "sim/invalid_lengths.h"
#include "sim/quantize/kit.h"

namespace fa3::sim {
namespace {

const bool added = add_rotated<64>() && add_rotated<256>();

class QuantizeRotated : public testing::TestWithParam<int> {};

TEST_P(QuantizeRotated, ManyTiles_SameBitsUnderAllSchedules) {
  const Quantised of{GetParam(), GetParam(), 1, false, GetParam()};
  std::vector<unsigned char> first;
  for (u64 seed = 0; seed < 8; ++seed) {
    TestRuntime runtime;
    runtime.device.options.seed = seed;
    QuantizeRun run(runtime, of);
    run.run();
    if (seed == 0) first = run.bits();
    EXPECT_EQ(run.bits(), first) << "seed " << seed;
  }
}

TEST(QuantizeRotatedLengths, InvalidOnes_TouchNothingOutside) {
  TestRuntime runtime;
  QuantizeRun run(runtime, {64, 64, 1, false, 64, true});
  ASSERT_EQ(run.kernels(), 1u);
  InvalidLengths lengths(runtime, run);
  lengths.expect_named_sequences_harmless();
  lengths.expect_random_ones_harmless(some_of(5));
}

INSTANTIATE_TEST_SUITE_P(HeadDims, QuantizeRotated, testing::Values(64, 256));

}  // namespace
}  // namespace fa3::sim
