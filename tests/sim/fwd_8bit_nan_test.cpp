// SPDX-License-Identifier: BSD-3-Clause
// fwd_8bit_nan_test.cpp — NaN among E4M3 codes, and where scales could make one, in the forward
// kernel of Hopper in the simulator.
#include <cmath>
#include <cstdint>

#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

using verify::Index;

constexpr int64_t kSeqlen = 200;

// A causal problem, for a code or scales to be changed.
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

// Masked scores are −Inf, and scores may be 0: times a product of scales that is 0 or Inf in FP32
// they would be NaN.
TEST_F(SimFwd8BitNan, ProductOfScalesBeyondFp32_MakesNone) {
  config_.seqlen_q = kSeqlen + 9;  // whose first rows see nothing
  for (const fa3_dtype dtype : {FA3_F8_E4M3, FA3_I8}) {
    config_.dtype = dtype;
    for (const double scale : {1e-30, 1e25}) {
      SCOPED_TRACE(scale);
      tensors_ = verify::make_tensors(config_);
      verify::fill(tensors_.q_scale.view, scale), verify::fill(tensors_.k_scale.view, scale);
      for (int64_t c = 0; c < config_.head_dim_qk; ++c)
        verify::set(tensors_.q.view, {0, kSeqlen, 0, c}, 0);
      const fa3_forward_args args = verify::forward_args(config_, tensors_);
      run();
      for (const verify::OutputResult& r : verify::compare_forward(args))
        EXPECT_TRUE(r.ok) << verify::to_text(r);
    }
  }
}

}  // namespace
}  // namespace fa3
