// SPDX-License-Identifier: BSD-3-Clause
// schedule_test.cpp — which CTA takes which Q tile, by the simulator's clock: none holds a
// tile that another could begin.
#include "sim/fwd/configs.h"
#include "sim/fwd/kit.h"

namespace fa3::sim {
namespace {

constexpr FwdConfig kVarlen = small(MaskKind::kFull, true);
const bool added = (add_fwd<kVarlen>(), true);

// The first sequence has three times the keys of the others; there are two of those for each of the
// other three CTAs. Had CTA 0 claimed its second tile at the start, it would end a third later.
TEST(FwdSchedule, LongTile_KeepsNoOtherWaiting) {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.alignment = 16;
  c.varlen_q.assign(7, 100);
  c.varlen_kv.assign(7, 8 * 32);
  c.varlen_kv[0] = 24 * 32;
  TestRuntime runtime;
  Trace trace;
  runtime.device.options.timed = true;
  runtime.device.options.trace = &trace;
  FwdRun run(runtime, c, kVarlen);
  run.run();
  int tiles[4] = {};
  for (const Trace::Event& event : trace.events()) {
    if (event.name == "tma_store o[0]") ++tiles[event.process];  // the first consumer's
  }
  EXPECT_EQ(tiles[0], 1);
  for (int cta = 1; cta < 4; ++cta) EXPECT_EQ(tiles[cta], 2) << "CTA " << cta;
}

}  // namespace
}  // namespace fa3::sim
