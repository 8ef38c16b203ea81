// SPDX-License-Identifier: BSD-3-Clause
// batch_invariant_test.cpp — with batch_invariant, the forward's kernel and that of few queries
// give a query the same bits, whatever shares the call with it.
#include "tests/kit/row_bits.h"
#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

constexpr int64_t kLength = 2048 + 70;  // two parts of the keys, one of them short

TEST(SimBatchInvariant, BitsAreOfTheSequenceAlone) {
  kit::RowBits<uint16_t> bits(simulator(), 3, kLength);
  EXPECT_EQ(kit::count_changes(bits, kLength, {16}), 0);
}

TEST(SimBatchInvariant, Without_SomeChange) {
  kit::RowBits<uint16_t> bits(simulator(), 3, kLength);
  bits.batch_invariant = 0;
  EXPECT_GT(bits.count_changes({{0, kLength - 1, 1}}) +
                bits.count_changes({{0, kLength - 1, 1}, {1, 700, 1}, {2, 1500, 1}}),
            0);
}

}  // namespace
}  // namespace fa3
