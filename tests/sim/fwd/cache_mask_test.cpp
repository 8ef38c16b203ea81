// SPDX-License-Identifier: BSD-3-Clause
// cache_mask_test.cpp — attn_mask over keys in a cache, which the simulator has no kernel for in
// libfa3_sim: one producer then loads Q, K, V and the mask, in runs and row by row.
#include <string_view>

#include "sim/fwd/kit.h"

namespace fa3::sim {
namespace {

constexpr FwdConfig masked(KvSource kv) {
  for (const FwdRow& row : kFwdRows) {
    if (std::string_view(row.name) != "d64") continue;
    return config_of(row, {.mask = MaskKind::kWindow,
                           .score = ScoreKind::kScaled,
                           .ragged = true,
                           .functors = {.attn_mask = MaskTensor::kF32},
                           .kv = kv});
  }
  return {};
}
static_assert(masked(KvSource::kRuns).mask.has_tensor() && !masked(KvSource::kRows).v_producer());

const bool added = (add_fwd<masked(KvSource::kRuns)>(), add_fwd<masked(KvSource::kRows)>(), true);

void expect_right(int64_t page_size, KvSource kv) {
  for (const uint64_t seed : {0u, 2u}) {  // with and without hidden blocks
    TestRuntime runtime;
    verify::Config c;
    c.dtype = FA3_BF16;
    c.batch = 2;
    c.heads_q = 2;
    c.head_dim_qk = c.head_dim_v = 64;
    c.seqlen_q = 150, c.seqlen_kv = 700;
    c.seqused_kv = {700, 333};
    c.page_size = page_size;
    c.attn_mask = FA3_F32;
    c.alignment = 16;
    c.seed = seed;
    FwdRun run(runtime, c, masked(kv));
    run.run();
    for (const verify::OutputResult& result : run.judge())
      EXPECT_TRUE(result.ok) << result.name << ", seed " << seed;
  }
}

TEST(SimCacheMask, RunsOfPages) { expect_right(16, KvSource::kRuns); }
TEST(SimCacheMask, RowsOfPages) { expect_right(1, KvSource::kRows); }

}  // namespace
}  // namespace fa3::sim
