// SPDX-License-Identifier: BSD-3-Clause
// chunks_test.cpp — chunks on a forward kernel whose three consumers leave out tiles that none of
// their rows sees, which may be of several chunks: right, and the same bits under every schedule.
#include "sim/fwd/configs.h"
#include "sim/fwd/kit.h"

namespace fa3::sim {
namespace {

constexpr FwdConfig three(bool ragged) {
  FwdConfig c = small(MaskKind::kChunk, ragged);
  c.tile.consumer_wgs = 3;
  c.overlap.ping_pong = false;
  return c;
}
constexpr FwdConfig kDense = three(false), kRagged = three(true);
const bool added = (add_fwd<kDense>(), add_fwd<kRagged>(), true);

TEST(FwdChunks, ThreeConsumers_RightUnderEverySchedule) {
  for (const double chunk : {20.0, 64.0, 100.0, 190.0}) {
    for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL}) {
      verify::Config c;
      c.dtype = FA3_BF16;
      c.heads_q = 2;
      c.alignment = 16;
      c.seqlen_q = 700, c.seqlen_kv = 690;
      c.mask = mask;
      c.numbers["attention_chunk"] = chunk;
      const bool ragged = chunk > 64;
      if (ragged) c.varlen_q = {300, 0, 1, 440, 5}, c.varlen_kv = {270, 3, 0, 465, 40};
      TestRuntime runtime;
      FwdRun attention(runtime, c, ragged ? kRagged : kDense);
      std::vector<unsigned char> first;
      for (u64 seed = 0; seed < some_of(3); ++seed) {
        runtime.device.options.seed = seed;
        ASSERT_NO_THROW(attention.run()) << "seed " << seed << " chunk " << chunk;
        if (seed == 0) {
          first = attention.bits();
          for (const verify::OutputResult& r : attention.judge())
            EXPECT_TRUE(r.ok) << to_text(r) << " chunk " << chunk;
        }
        ASSERT_EQ(attention.bits(), first) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace fa3::sim
