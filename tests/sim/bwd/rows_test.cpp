// SPDX-License-Identifier: BSD-3-Clause
// rows_test.cpp — backward kernels under several schedules and numbers of multiprocessors, with
// every term of scores at once; deterministic ones give the same bits under all. And kernels on
// lengths that hold anything.
#include <string>
#include <vector>

#include "sim/bwd/kit.h"
#include "sim/invalid_lengths.h"
#include "tests/kit/thorough.h"

namespace fa3::sim {
namespace {

// Ragged, or dense and with sums of dQ that the main kernel sets to 0.
constexpr BwdConfig made(BwdConfig c, bool ragged, bool deterministic) {
  c.ragged = ragged, c.sets_zeros = !ragged;
  c.deterministic = deterministic;
  return c;
}
constexpr BwdConfig kRow64 = made(bwd_config("d64"), true, true);
constexpr BwdConfig kRow128 = made(bwd_config("d128"), true, false);
constexpr BwdConfig with_terms(BwdConfig c) {
  c.softcap = c.functors = true;
  return made(c, true, true);
}
constexpr BwdConfig kTerms64 = with_terms(bwd_config("d64_terms"));
constexpr BwdConfig kTerms128 = with_terms(bwd_config("d128"));
constexpr BwdConfig kTerms256 = with_terms(bwd_config("d256"));
constexpr BwdConfig kZeros64 = made(bwd_config("d64"), false, true);
constexpr BwdConfig kZeros128 = made(bwd_config("d128"), false, false);
constexpr BwdConfig kZeros256 = made(bwd_config("d256"), false, true);
const bool added =
    (add_bwd<kTerms64>(), add_bwd<kTerms128>(), add_bwd<kTerms256>(), add_bwd<kRow64>(),
     add_bwd<kRow128>(), add_bwd<kZeros64>(), add_bwd<kZeros128>(), add_bwd<kZeros256>(), true);

std::vector<verify::Config> problems(const BwdConfig& c) {
  verify::Config p;
  p.dtype = FA3_BF16;
  p.backward = true;
  p.heads_q = 2;
  p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = c.head_dim_qk;
  p.seqlen_q = 200, p.seqlen_kv = 300;
  p.alignment = 16;
  if (c.softcap) p.softcap = 4;
  if (c.functors) p.alibi = true, p.sequence_ids = 2;
  verify::Config causal = p;
  causal.mask = FA3_MASK_CAUSAL;
  if (c.sets_zeros) {  // of the heads behind the first
    p.batch = 3, p.heads_q = 1, causal.batch = 2;
    return {p, causal};
  }
  verify::Config varlen = causal;
  varlen.varlen_q = {200, 0, 1, 130}, varlen.varlen_kv = {133, 3, 0, 40};
  varlen.spare_q = 9, varlen.spare_kv = 300;
  verify::Config one_tile = p;
  one_tile.heads_q = 1;
  one_tile.seqlen_q = one_tile.seqlen_kv = 5;
  return {p, causal, varlen, one_tile};
}

class BwdRows : public testing::TestWithParam<BwdConfig> {};

TEST_P(BwdRows, AreRightUnderSeveralSchedules) {
  if (kSanitized && GetParam() != kRow64)
    GTEST_SKIP() << "one kernel is enough for sanitizers, which look at the simulator";
  for (size_t i = 0; const verify::Config& problem : problems(GetParam())) {
    if (!kit::due(i++, 2)) continue;
    TestRuntime runtime;
    BwdRun attention(runtime, problem, GetParam());
    constexpr u32 kSms[] = {1, 2, 3, 132};
    std::vector<unsigned char> first;
    for (u64 seed = 0; seed < some_of(4); ++seed) {
      SCOPED_TRACE(seed);
      runtime.device.options.seed = seed;
      runtime.device.options.sms = kSms[seed % 4];
      attention.run();
      if (seed == 0) first = attention.bits();
      if (GetParam().deterministic) {
        EXPECT_EQ(attention.bits(), first);
      }
      for (const verify::OutputResult& r : attention.judge())
        EXPECT_TRUE(r.ok) << verify::to_text(r);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, BwdRows,
    testing::Values(kRow64, kRow128, kTerms64, kTerms128, kTerms256, kZeros64, kZeros128,
                    kZeros256),
    [](const auto& info) {
      const BwdConfig& c = info.param;
      return (c.softcap ? "terms" : c.sets_zeros ? "zeros" : "row") + std::to_string(c.head_dim_qk);
    });

TEST(BwdInvalidLengths, TouchNothingOutside) {
  verify::Config problem = with_lengths();
  problem.backward = true;
  problem.mask = FA3_MASK_CAUSAL;
  if (kSanitized) problem.heads_q = 1;  // a second one is nothing to them
  TestRuntime runtime;
  BwdRun attention(runtime, problem, kRow64);
  InvalidLengths lengths(runtime, attention);
  lengths.expect_named_ones_harmless();
  lengths.expect_random_ones_harmless(some_of(15));
}

}  // namespace
}  // namespace fa3::sim
