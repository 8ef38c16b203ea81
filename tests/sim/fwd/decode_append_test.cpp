// SPDX-License-Identifier: BSD-3-Clause
// decode_append_test.cpp — the kernel that appends and those behind it, side by side: every wait is
// left out in turn, and what is in device memory may hold anything.
#include "device/sm90/append/append.cuh"
#include "plan/sm90/append/plan.h"
#include "sim/fwd/decode_kit.h"
#include "sim/invalid_lengths.h"
#include "sim/mutations.h"

namespace fa3::sim {
namespace {

constexpr DecodeConfig appending(DecodeConfig c) {
  c.appends = true;
  return c;
}
constexpr DecodeConfig kRagged = small_decode(true), kRuns = small_decode(KvSource::kRuns);
constexpr DecodeConfig kOwn = appending(kRagged), kOwnOfRuns = appending(kRuns),
                       kOwnOfRows = appending(small_decode(KvSource::kRows));
const bool added = [] {
  constexpr AppendConfig kBf16{.table = FloatType::kBf16};  // those of the seed
  const Registration appending(append_expression(kBf16).c_str(), kernel_of(&append<kBf16>));
  return add_decode<kRagged>(), add_decode<kRuns>(), add_decode<kOwn>(), add_decode<kOwnOfRuns>(),
         add_decode<kOwnOfRows>(), true;
}();

// Appending, then few queries.
class AppendRun : public KernelRun {
 public:
  AppendRun(TestRuntime& runtime, const verify::Config& made, const DecodeConfig& config)
      : KernelRun(runtime, made, FA3_OP_FORWARD) {
    runtime.overlaps = true;
    DeviceInfo device = test_device();
    const Append append = make_append(problem());
    StepList steps;
    steps.keep(append);
    steps.begin({problem(), {}});
    steps.add(value(make_append_plan(append, problem(), device)));
    const Problem& attention = append.attention.problem;
    const DecodePlans plans =
        make_decode_plans(config, value(make_fwd_plan(attention, device)), attention, device);
    steps.begin(append.attention);
    steps.add(plans.decode);
    steps.add(plans.combine);
    set_plan(steps.finish());
  }
};

// Few queries, whose kernel appends.
class OwnRun : public DecodeRun {
 public:
  OwnRun(TestRuntime& runtime, const verify::Config& made, const DecodeConfig& config)
      : DecodeRun(runtime, made, config, 4) {
    EXPECT_TRUE(can_append(config, problem()));
  }
};

verify::Config problem(int64_t page_size) {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.batch = 3;
  c.heads_q = 4, c.heads_kv = 2;
  c.seqlen_q = 2, c.seqlen_kv = 5 * 64 + 9;
  c.seqused_kv = {329, 64, 2};
  c.append = {2, 2, 2};
  c.page_size = page_size;
  c.rotary_dim = 32;
  c.seed = 1;  // positions of their own
  c.alignment = 16;
  return c;
}

const std::vector<Spared> kSpared = {
    {nullptr, "converge", "the simulator does not ask whether lanes are converged"},
    {nullptr, "one_tile", "a CTA works on one tile"},
    {"rows", "wait_kv", "who waits for rows fences for what others have written, too"},
    {"rows", "no_tma", "nothing but threads arrives"},
    {"rows", "copies", "what lanes copy is not read by the async proxy"},
    {"runs", "meets", "lanes meet again before they load runs"},
};

void expect_invalid_lengths_harmless(TestRuntime& runtime, auto& run) {
  InvalidLengths lengths(runtime, run);
  lengths.expect_named_ones_harmless();
  lengths.expect_random_ones_harmless(8);
}

TEST(AppendKernel, EveryLineIsMissed) {
  TestRuntime runtime;
  AppendRun run(runtime, problem(16), kRuns);
  Mutations(runtime, run).expect_every_line_missed("append", kSpared, 15);
}

TEST(AppendKernel, InvalidLengths_AreHarmless) {
  for (const int64_t page_size : {0, 16}) {
    TestRuntime runtime;
    AppendRun run(runtime, problem(page_size), page_size > 0 ? kRuns : kRagged);
    expect_invalid_lengths_harmless(runtime, run);
  }
}

// What the warp that loads a tile writes before.
TEST(AppendingDecode, EveryLineIsMissed) {
  const std::tuple<const char*, DecodeConfig, int64_t> kKernels[] = {
      {"own", kOwn, 0}, {"runs", kOwnOfRuns, 16}, {"rows", kOwnOfRows, 1}};
  for (const auto& [name, config, page_size] : kKernels) {
    SCOPED_TRACE(name);
    TestRuntime runtime;
    verify::Config c = problem(page_size);
    c.seqused_kv = {329, 64, 67};  // of the third one key in a tile, one in the next
    OwnRun run(runtime, c, config);
    Mutations(runtime, run).expect_every_line_missed(name, kSpared, 15);
  }
}

TEST(AppendingDecode, InvalidLengths_AreHarmless) {
  for (const int64_t page_size : {0, 16}) {
    TestRuntime runtime;
    OwnRun run(runtime, problem(page_size), page_size > 0 ? kOwnOfRuns : kOwn);
    expect_invalid_lengths_harmless(runtime, run);
  }
}

TEST(AppendKernel, InvalidPackedLengths_AreHarmless) {
  TestRuntime runtime;
  verify::Config c = problem(16);
  c.varlen_q = {2, 1, 2}, c.spare_q = 3;
  c.append = {9, 0, 2};
  c.packed_new = true;
  AppendRun run(runtime, c, kRuns);
  InvalidLengths(runtime, run).expect_random_ones_harmless(8);
}

}  // namespace
}  // namespace fa3::sim
