// SPDX-License-Identifier: BSD-3-Clause
// decode_mutations_test.cpp — every wait, arrival, fence and barrier of the decode kernels is left
// out in turn: the simulator has to report that, or the result has to differ.
#include "device/sm90/decode/combine.cuh"
#include "device/sm90/decode/decode.cuh"
#include "plan/sm90/decode/plan.h"
#include "sim/kernel_run.h"
#include "sim/mutations.h"

namespace fa3::sim {
namespace {

using namespace sm90;

// Rings that go round several times, and 64 columns.
constexpr DecodeConfig small(bool ragged) {
  DecodeConfig c;
  c.head_dim_qk = c.head_dim_v = 64;
  c.rows = 16;
  c.stages = 2;
  c.ragged = ragged;
  return c;
}

template <DecodeConfig kCfg>
void add_decode() {
  constexpr CombineConfig kCombine = combine_of(kCfg);
  const Registration decoding(decode_expression(kCfg).c_str(), kernel_of(&decode<kCfg>));
  const Registration combining(combine_expression(kCombine).c_str(), kernel_of(&combine<kCombine>));
}
const bool added = (add_decode<small(false)>(), add_decode<small(true)>(), true);

class DecodeRun : public KernelRun {
 public:
  DecodeRun(TestRuntime& runtime, const verify::Config& made, const DecodeConfig& config,
            int multiprocessors)
      : KernelRun(runtime, made, FA3_OP_FORWARD) {
    DeviceInfo device = test_device();
    device.multiprocessors = multiprocessors;
    const FwdPlan forward = value(make_fwd_plan(problem(), device));
    const DecodePlans plans = make_decode_plans(config, forward, problem(), device);
    set_kernels({plans.decode, plans.combine});
  }
};

// Units that one CTA has, and such as two and more share.
verify::Config dense() {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.batch = 3;
  c.heads_q = 8, c.heads_kv = 2;
  c.alignment = 16;
  c.magnitude = 20;  // maxima grow, so that O is rescaled
  c.seqlen_q = 2;
  c.seqlen_kv = 5 * 64 + 9;
  return c;
}

const std::vector<Spared> kSpared = {
    {nullptr, "converge", "the simulator does not ask whether lanes are converged"},
    {"many_parts", "one_tile", "a CTA works on one tile"},
};

TEST(DecodeMutations, EveryLineIsMissed) {
  TestRuntime runtime;
  DecodeRun run(runtime, dense(), small(false), 4);
  Mutations(runtime, run).expect_every_line_missed("decode", kSpared, 15);
}

// A unit of more parts than a warp has in flight.
TEST(DecodeMutations, EveryLineIsMissed_ManyParts) {
  TestRuntime runtime;
  verify::Config c = dense();
  c.batch = 1;
  c.heads_q = 16, c.heads_kv = 1;  // more rows than CTAs side by side
  c.seqlen_q = 1;
  c.seqlen_kv = 12 * 64;
  DecodeRun run(runtime, c, small(true), 12);
  run.run();
  for (const verify::OutputResult& result : run.judge()) EXPECT_TRUE(result.ok) << result.name;
  Mutations(runtime, run).expect_every_line_missed("many_parts", kSpared, 15);
}

}  // namespace
}  // namespace fa3::sim
