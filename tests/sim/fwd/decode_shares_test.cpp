// SPDX-License-Identifier: BSD-3-Clause
// decode_shares_test.cpp — how the decode kernel's CTAs share the units of a call.
#include <algorithm>
#include <random>

#include "sim/fwd/decode_kit.h"

namespace fa3::sim {
namespace {

constexpr DecodeConfig two_ctas() {
  DecodeConfig c = small_decode(true);
  c.ctas_per_sm = 2;
  return c;
}

const bool added = (add_decode<small_decode(false)>(), add_decode<small_decode(true)>(),
                    add_decode<two_ctas()>(), true);

verify::Config of_lengths(const std::vector<int64_t>& used, int64_t heads_kv) {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.batch = static_cast<int64_t>(used.size());
  c.heads_kv = heads_kv, c.heads_q = 4 * heads_kv;
  c.seqlen_q = 1;
  c.seqlen_kv = *std::max_element(used.begin(), used.end());
  c.seqused_kv = used;
  c.alignment = 16;
  return c;
}

// Whether CTAs left parts to merge.
bool leaves_parts(const verify::Config& c, const DecodeConfig& config, int multiprocessors) {
  TestRuntime runtime;
  DecodeRun run(runtime, c, config, multiprocessors);
  constexpr std::byte kBefore{0x5A};
  std::ranges::fill(run.workspace(), kBefore);
  run.run();
  for (const verify::OutputResult& result : run.judge()) EXPECT_TRUE(result.ok) << result.name;
  return std::ranges::any_of(run.workspace(), [](std::byte b) { return b != kBefore; });
}

TEST(SimDecodeShares, EqualUnitsAreNotCut) {
  EXPECT_FALSE(leaves_parts(of_lengths({320, 320, 320, 320}, 2), small_decode(true), 4));
  EXPECT_FALSE(leaves_parts(of_lengths({320, 320, 320, 320}, 2), small_decode(true), 8));
  EXPECT_FALSE(leaves_parts(of_lengths({320, 320, 320, 320}, 2), two_ctas(), 4));
  verify::Config dense = of_lengths({320, 320, 320, 320}, 2);
  dense.seqused_kv.clear();
  EXPECT_FALSE(leaves_parts(dense, small_decode(false), 4));
}

// A CTA may have a sixteenth more tiles than in the mean.
TEST(SimDecodeShares, NearlyEqualUnitsAreNotCut) {
  EXPECT_FALSE(leaves_parts(of_lengths({17 * 64, 16 * 64, 16 * 64}, 1), small_decode(true), 3));
  EXPECT_TRUE(leaves_parts(of_lengths({19 * 64, 16 * 64, 16 * 64}, 1), small_decode(true), 3));
}

// Units are cut where a CTA would have twice the work of another.
TEST(SimDecodeShares, UnequalUnitsAreCut) {
  EXPECT_TRUE(leaves_parts(of_lengths({320, 320, 320, 320}, 2), small_decode(true), 5));
  EXPECT_TRUE(leaves_parts(of_lengths({640, 64, 64}, 1), small_decode(true), 3));
  EXPECT_TRUE(leaves_parts(of_lengths({640}, 2), small_decode(true), 4));
}

// A share of whole units is longer than the mean by less than one of them.
TEST(SimDecodeShares, ManyShortUnitsAreNotCut) {
  std::vector<int64_t> used;
  for (int b = 0; b < 40; ++b) used.push_back(b % 3 == 0 ? 128 : 64);
  EXPECT_FALSE(leaves_parts(of_lengths(used, 2), small_decode(true), 2));
}

TEST(SimDecodeShares, AnyLengthsOnAnyNumberOfSms_AreRight) {
  std::mt19937 random(7);
  for (int i = 0; i < (kSanitized ? 4 : 25); ++i) {
    std::vector<int64_t> used(1 + random() % 40);  // beyond 32, which a warp looks at together
    for (int64_t& length : used) length = random() % 4 == 0 ? 0 : random() % 400;
    used[random() % used.size()] = 1 + random() % 600;
    const int64_t heads_kv = 1 + random() % 3;
    leaves_parts(of_lengths(used, heads_kv), small_decode(true), 1 + random() % 9);
  }
}

}  // namespace
}  // namespace fa3::sim
