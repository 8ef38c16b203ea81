// SPDX-License-Identifier: BSD-3-Clause
// combine_test.cpp — the kernel of fa3_combine in the simulator, against the formula in FP64: any
// strides, addresses, types and numbers of parts.
#include <gmock/gmock.h>

#include "tests/kit/combine_call.h"
#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

using Call = kit::CombineCall;

TEST(SimCombine, RandomCalls_FollowTheFormula) {
  kit::expect_property("combine in the simulator", 120, [] {
    Call c = *kit::any_combine_call(600);
    c.make();
    c.run(simulator());
    c.expect_right();
  });
}

// Wide rows: pieces of 64 or 128 columns, in one access a lane.
TEST(SimCombine, EveryTypeAndHeadDim_FollowsTheFormula) {
  for (const fa3_dtype in : {FA3_F32, FA3_F16, FA3_BF16}) {
    for (const fa3_dtype out : {FA3_F32, FA3_F16, FA3_BF16}) {
      for (const int64_t dim : {8, 64, 128, 192, 512}) {
        Call c;
        c.in = in, c.out = out, c.dim = dim, c.parts = 9;
        c.make();
        c.run(simulator());
        c.expect_right();
      }
    }
  }
}

// A sink may weigh 10³⁰ times as much as all parts, or as little; they keep their digits.
TEST(SimCombine, SinksFarFromTheParts_FollowTheFormula) {
  for (const double spread : {5.0, 20.0, 61.0}) {
    for (const int64_t parts : {1, 2, 9}) {
      for (uint32_t seed = 1; seed <= 4; ++seed) {
        Call c;
        c.parts = parts, c.spread = spread, c.seed = seed, c.sink_dtype = FA3_F32;
        c.make();
        c.run(simulator());
        c.expect_right();
      }
    }
  }
}

// What has no rows has nothing to launch.
TEST(SimCombine, NoRows) {
  for (int64_t Call::*extent : {&Call::batch, &Call::seqlen, &Call::heads}) {
    Call c;
    c.*extent = 0;
    c.make();
    c.run(simulator());
  }
}

TEST(SimCombine, IsExplained) {
  Call c;
  c.make();
  const fa3_combine_args a = c.args();
  std::string text(4096, '\0');
  ASSERT_EQ(fa3_explain(simulator(), FA3_OP_COMBINE, &a, text.data(), text.size(), nullptr), FA3_OK)
      << fa3_last_error();
  EXPECT_THAT(text, testing::HasSubstr("fa3::sm90::merge<"));
}

}  // namespace
}  // namespace fa3
