// SPDX-License-Identifier: BSD-3-Clause
// fwd_8bit_nan_test.cpp — NaN among E4M3 codes, in the forward kernel of Hopper in the simulator.
#include <cmath>
#include <cstdint>

#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

using verify::Index;

constexpr int64_t kSeqlen = 200;

// A causal problem in which one code becomes NaN.
class SimFwd8BitNan : public testing::Test {
 protected:
  SimFwd8BitNan() {
    config_ = causal();
    config_.dtype = FA3_F8_E4M3;
    config_.heads_q = config_.heads_kv = 2;
    config_.seqlen_q = config_.seqlen_kv = kSeqlen;
    tensors_ = verify::make_tensors(config_);
  }

  void set_nan(const fa3_tensor& t, const Index& at) {
    int64_t offset = 0;
    for (int d = 0; d < t.rank; ++d) offset += at[d] * t.stride[d];
    static_cast<uint8_t*>(t.data)[offset] = 0x7f;
  }
  bool is_nan(int64_t row, int64_t head, int64_t column) const {
    return std::isnan(verify::get(tensors_.o.view, {0, row, head, column}));
  }
  void run() {
    const fa3_forward_args args = verify::forward_args(config_, tensors_);
    ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
  }

  verify::Config config_;
  verify::Tensors tensors_;
};

TEST_F(SimFwd8BitNan, InKey_ReachesExactlyTheRowsThatSeeIt) {
  constexpr int64_t kKey = 70;
  set_nan(tensors_.k.view, {0, kKey, 0, 3});
  run();
  for (int64_t row = 0; row < kSeqlen; ++row)
    for (int64_t head = 0; head < config_.heads_q; ++head)
      EXPECT_EQ(is_nan(row, head, 0), row >= kKey && head == 0) << row << ", " << head;
}

TEST_F(SimFwd8BitNan, InQuery_StaysInItsRow) {
  set_nan(tensors_.q.view, {0, 64, 1, 7});
  run();
  for (int64_t row = 0; row < kSeqlen; ++row)
    for (int64_t head = 0; head < config_.heads_q; ++head)
      EXPECT_EQ(is_nan(row, head, 0), row == 64 && head == 1) << row << ", " << head;
}

TEST_F(SimFwd8BitNan, InVisibleValue_ReachesItsColumn) {
  config_.mask = FA3_MASK_FULL;
  set_nan(tensors_.v.view, {0, 150, 0, 5});
  run();
  for (int64_t row = 0; row < kSeqlen; ++row)
    for (int64_t column = 0; column < config_.head_dim_v; ++column)
      EXPECT_EQ(is_nan(row, 0, column), column == 5) << row << ", " << column;
}

}  // namespace
}  // namespace fa3
