// SPDX-License-Identifier: BSD-3-Clause
// backward_test.cpp — the backward on a Hopper GPU. Without one, tests skip themselves.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "fa3/fa3.h"
#include "tools/verify/check.h"

namespace fa3 {
namespace {

std::vector<verify::Config> configs() {
  std::vector<verify::Config> all;
  for (const int64_t head_dim : {64, 128, 256}) {
    for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL}) {
      verify::Config c;
      c.dtype = FA3_BF16;
      c.backward = true;
      c.batch = 2;
      c.heads_q = 4;
      c.heads_kv = 2;
      c.seqlen_q = 301;
      c.seqlen_kv = 423;
      c.head_dim_qk = c.head_dim_v = head_dim;
      c.mask = mask;
      c.alignment = 16;
      all.push_back(c);
      c.varlen_q = {100, 0, 257, 31};
      c.varlen_kv = {90, 50, 300, 0};
      c.spare_q = 140;
      c.spare_kv = 77;
      c.seqused_q = {50, 0, 200, 31};
      c.seqused_kv = {80, 1, 255, 0};
      all.push_back(c);
    }
  }
  return all;
}

TEST(GpuBackward, Results_AreRight) {
  fa3_context_options options = {};
  options.struct_size = sizeof options;
  options.device_type = FA3_DEVICE_CUDA;
  fa3_context* made = nullptr;
  if (fa3_context_create(&options, &made) != FA3_OK) GTEST_SKIP() << fa3_last_error();
  const std::shared_ptr<fa3_context> context(made, fa3_context_destroy);
  for (const verify::Config& c : configs()) {
    const verify::Report report = verify::check(c, context.get());
    EXPECT_TRUE(report.ok) << report.text;
  }
}

}  // namespace
}  // namespace fa3
