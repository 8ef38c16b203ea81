// SPDX-License-Identifier: BSD-3-Clause
// blocks_test.cpp — blocks of rows that a CTA holds, of any number of rows, have the bits of those
// whose maxima another kernel finds; in the simulator. Neither touches anything outside of the
// tensors, whatever their lengths are.
#include <gmock/gmock.h>

#include "sim/invalid_lengths.h"
#include "sim/quantize/kit.h"

namespace fa3::sim {
namespace {

template <int kRows>
bool add_blocks() {
  return add_quantize<64, 64, kRows>() && add_quantize<64, 0, kRows>();
}
const bool added = add_blocks<0>() && add_blocks<40>() && add_blocks<72>() && add_blocks<100>() &&
                   add_blocks<200>() && add_blocks<256>();

class QuantizeBlocks : public testing::TestWithParam<int> {};

TEST_P(QuantizeBlocks, HeldByACta_HaveTheBitsOfTwoPasses) {
  for (const int hadamard : {64, 0}) {
    for (const bool means : {false, true}) {
      const Quantised of{64, hadamard, GetParam(), means};
      TestRuntime runtime;
      QuantizeRun held(runtime, of);
      held.run();
      QuantizeRun two(runtime, of, true);
      two.run();
      EXPECT_EQ(held.kernels() + 1, two.kernels());
      EXPECT_EQ(held.bits(), two.bits()) << "hadamard " << hadamard << (means ? ", means" : "");
    }
  }
}

TEST(QuantizeLengths, InvalidOnes_TouchNothingOutside) {
  for (const int rows : {40, 0}) {
    TestRuntime runtime;
    QuantizeRun run(runtime, {64, 64, rows, true, 0, true});
    InvalidLengths lengths(runtime, run);
    lengths.expect_named_sequences_harmless();
    lengths.expect_random_ones_harmless(some_of(5));
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, QuantizeBlocks, testing::Values(40, 72, 100, 200, 256));

}  // namespace
}  // namespace fa3::sim
