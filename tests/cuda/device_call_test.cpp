// SPDX-License-Identifier: BSD-3-Clause
// device_call_test.cpp — copies of tensors on a GPU, in the memory of the fake one.
#include "tools/verify/device_call.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace fa3::verify {
namespace {

// Whatever dimension lies inside: LSE of (batch, heads, seqlen) is often kept by rows.
TEST(DeviceTensor, GoesThereAndBack_InAnyOrder) {
  const int64_t shape[] = {2, 3, 5};
  for (const std::vector<int64_t>& strides :
       {std::vector<int64_t>{15, 5, 1}, {15, 1, 3}, {1, 2, 6}, {40, 8, 2}}) {
    std::vector<float> memory(80);
    std::iota(memory.begin(), memory.end(), 1.0f);
    fa3_tensor t = fa3_dense(memory.data(), FA3_F32, 3, shape);
    std::copy(strides.begin(), strides.end(), t.stride);
    std::vector<float> want(memory.size(), -1);
    for (int64_t i = 0; i < 30; ++i) {
      const int64_t at = i / 15 * strides[0] + i / 5 % 3 * strides[1] + i % 5 * strides[2];
      want[at] = memory[at];
    }
    Gpu gpu(0);
    DeviceTensor there(gpu, t);
    EXPECT_FALSE(there.changed());
    std::fill(memory.begin(), memory.end(), -1.0f);
    EXPECT_TRUE(there.changed());
    there.fetch();
    EXPECT_EQ(memory, want);
  }
}

}  // namespace
}  // namespace fa3::verify
