// SPDX-License-Identifier: BSD-3-Clause
// decode_lengths_test.cpp — the decode kernels on lengths that hold anything.
#include "sim/fwd/decode_kit.h"
#include "sim/invalid_lengths.h"

namespace fa3::sim {
namespace {

const bool added = (add_decode<small_decode(true)>(), true);

TEST(SimDecodeLengths, Invalid_AreHarmless) {
  TestRuntime runtime;
  DecodeRun run(runtime, with_lengths(), small_decode(true), 4);
  InvalidLengths lengths(runtime, run);
  lengths.expect_named_ones_harmless();
  lengths.expect_named_sequences_harmless();
  lengths.expect_random_ones_harmless(kSanitized ? 5 : 40);
}

}  // namespace
}  // namespace fa3::sim
