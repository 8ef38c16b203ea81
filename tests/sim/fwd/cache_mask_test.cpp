// SPDX-License-Identifier: BSD-3-Clause
// cache_mask_test.cpp — attn_mask over keys in a cache, which the simulator has no kernel for in
// libfa3_sim: one producer then loads Q, K, V and the mask, in runs and row by row.
#include <climits>
#include <cmath>
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

verify::Config problem(int64_t page_size, uint64_t seed) {
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
  return c;
}

void expect_right(int64_t page_size, KvSource kv) {
  for (const uint64_t seed : {0u, 2u}) {  // with and without hidden blocks
    TestRuntime runtime;
    FwdRun run(runtime, problem(page_size, seed), masked(kv));
    run.run();
    for (const verify::OutputResult& result : run.judge())
      EXPECT_TRUE(result.ok) << result.name << ", seed " << seed;
  }
}

TEST(SimCacheMask, RunsOfPages) { expect_right(16, KvSource::kRuns); }
TEST(SimCacheMask, RowsOfPages) { expect_right(1, KvSource::kRows); }

// A page that does not exist, the last one of a sequence: as if the sequence ended before it.
TEST(SimCacheMask, KeysOfMissingPages_AreHidden) {
  TestRuntime runtime;
  FwdRun run(runtime, problem(16, 0), masked(KvSource::kRuns));
  const fa3_tensor& lse = run.tensors().lse.view;
  run.set_lengths(kSequsedKv, {688, 320});
  run.run();
  std::vector<double> expected;
  verify::for_each_row(lse, [&](const verify::Index& at, void*) {
    for (verify::Index i = at; i[2] < lse.shape[2]; ++i[2]) expected.push_back(verify::get(lse, i));
  });
  std::vector<i32> table = run.lengths(kPageTable);
  table[688 / 16] = -1, table[table.size() / 2 + 320 / 16] = INT_MAX;
  run.set_lengths(kPageTable, table);
  run.set_lengths(kSequsedKv, {700, 333});
  run.run();
  size_t n = 0;
  verify::for_each_row(lse, [&](const verify::Index& at, void*) {
    for (verify::Index i = at; i[2] < lse.shape[2]; ++i[2], ++n) {
      if (expected[n] == -INFINITY)
        EXPECT_EQ(verify::get(lse, i), -INFINITY);
      else
        EXPECT_NEAR(verify::get(lse, i), expected[n], 1e-5);
    }
  });
}

}  // namespace
}  // namespace fa3::sim
