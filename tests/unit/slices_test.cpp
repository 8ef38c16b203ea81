// SPDX-License-Identifier: BSD-3-Clause
// slices_test.cpp — slices of the workspace: which share memory, what is zeroed, and what the
// steps of plans share.
#include "plan/slices.h"

#include <gmock/gmock.h>

#include "plan/plan.h"
#include "plan/sm90/slices.h"
#include "tests/unit/fwd_plan_kit.h"

namespace fa3 {
namespace {

using testing::ElementsAre;

std::vector<size_t> offsets(const std::vector<PlacedSlice>& slices) {
  std::vector<size_t> all;
  for (const PlacedSlice& s : slices) all.push_back(s.offset);
  return all;
}

TEST(Slices, UsedAtTheSameTime_DoNotOverlap) {
  std::vector<PlacedSlice> slices = {
      {{"a", 100, 16}, 0, 2}, {{"b", 8, 64}, 1, 1}, {{"c", 4, 4}, 2, 3}, {{"none", 0, 64}, 0, 3}};
  EXPECT_EQ(lay_out(slices), 136u);
  EXPECT_THAT(offsets(slices), ElementsAre(0, 128, 100, 0));
}

TEST(Slices, OfOtherSteps_ShareMemory) {
  std::vector<PlacedSlice> slices = {{{"a", 100}, 0, 1}, {{"b", 50}, 2, 3}};
  EXPECT_EQ(lay_out(slices), 100u);
  EXPECT_THAT(offsets(slices), ElementsAre(0, 0));
}

TEST(Slices, WholePlanThenZeroed_ComeFirst) {
  std::vector<PlacedSlice> slices = {{{"scratch", 32}, 0, 1},
                                     {{"counter", 4, 4, true}, 1, 1},
                                     {{"codes", 64}, 0, PlacedSlice::kWholePlan}};
  EXPECT_EQ(lay_out(slices), 112u);
  EXPECT_THAT(offsets(slices), ElementsAre(80, 64, 0));
}

TEST(Slices, Zeroed_AdjacentOnesAtOnce) {
  std::vector<PlacedSlice> slices = {{{"a", 8, 4, true}, 0, 1},
                                     {{"b", 4, 4, true}, 0, 1},
                                     {{"c", 16}, 0, 1},
                                     {{"d", 4, 4, true}, 1, 1}};
  lay_out(slices);
  const std::vector<ZeroedRange> first = zeroed_before(0, slices),
                                 second = zeroed_before(1, slices);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].offset, 0u);
  EXPECT_EQ(first[0].bytes, 12u);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].bytes, 4u);
}

// The kernel before writes, the forward reads.
TEST(Slices, MaskBits_AreThoseOfTheStepBefore) {
  Problem p = sm90::problem(64, 64, 300, 300);
  p.layout[kAttnMask] = {FA3_BOOL, 0, 0, 300};
  const Result<KernelPlan> plan = plan_kernels(p, sm90::device());
  ASSERT_TRUE(plan.ok()) << plan.status().message;
  const std::vector<KernelStep>& steps = plan.value().steps;
  ASSERT_EQ(steps.size(), 2u);
  std::byte workspace[1];
  for (const char* name : {sm90::kMaskBitsSlice, sm90::kMaskTilesSlice}) {
    EXPECT_NE(steps[0].slice(name, workspace), nullptr);
    EXPECT_EQ(steps[0].slice(name, workspace), steps[1].slice(name, workspace)) << name;
  }
  EXPECT_EQ(steps[0].slice(sm90::kTileCounterSlice, workspace), nullptr);
}

TEST(Slices, ReadButNeverWritten_Throws) {
  sm90::FwdPlan forward;
  forward.score_offset = true;
  EXPECT_THROW(plan_with(Problem(), {forward}), Error);
}

}  // namespace
}  // namespace fa3
