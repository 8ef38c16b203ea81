// SPDX-License-Identifier: BSD-3-Clause
// coarse_lse_test.cpp — which LSE is coarse, and what the backward takes in its place.
#include "device/attn/coarse_lse.h"

#include <gtest/gtest.h>

namespace fa3 {
namespace {

TEST(CoarseLse, OfMoreKeysThanTheCallHas) {
  EXPECT_FALSE(is_coarse(1024.0f));
  EXPECT_TRUE(is_coarse(-1025.0f));
  EXPECT_FALSE(is_coarse(-kInf));
  EXPECT_FALSE(is_coarse(__builtin_nanf("")));
  EXPECT_EQ(log_sum_of_coarse(-1e9f, -1e9f, 4.2f), 4.2f);        // within LSE's rounding
  EXPECT_EQ(log_sum_of_coarse(-1e8f, -1e9f, 4.2f), 9e8f);        // the weights are 0
  EXPECT_EQ(log_sum_of_coarse(-1998.0f, -2000.0f, 1.0f), 2.0f);  // as exp(score − LSE) is
}

}  // namespace
}  // namespace fa3
