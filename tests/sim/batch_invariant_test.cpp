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

// Packed rows as columns of GEMMs, as their rows, in one tile and in several, and the forward's.
TEST(SimBatchInvariant, OfManyHeads) {
  kit::RowBits<uint16_t, 16> bits(simulator(), 2, kLength);
  EXPECT_EQ(bits.count_changes({{0, kLength - 100, 100}, {1, 300, 30}}), 0);
  for (const int64_t count : {1, 3, 8}) {
    EXPECT_EQ(bits.count_changes({{0, kLength - count, count}}), 0) << count;
    EXPECT_EQ(bits.count_changes({{1, 330 - count, count}, {0, kLength - 50, 1}}), 0) << count;
  }
}

TEST(SimBatchInvariant, WithSinks) {
  kit::RowBits<uint16_t> bits(simulator(), 2, kLength);
  bits.sinks = true;
  EXPECT_EQ(bits.count_changes({{0, kLength - 100, 100}}), 0);
  for (const int64_t count : {1, 3})
    EXPECT_EQ(bits.count_changes({{0, kLength - count, count}, {1, 300, 1}}), 0) << count;
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
