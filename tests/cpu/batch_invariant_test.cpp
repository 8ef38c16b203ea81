// SPDX-License-Identifier: BSD-3-Clause
// batch_invariant_test.cpp — with batch_invariant, a query gets the same bits from every call that
// it is computed in.
#include "tests/kit/row_bits.h"

namespace fa3 {
namespace {

constexpr int64_t kLength = 1400;

template <class T>
int count_changes(int threads, int32_t batch_invariant) {
  const kit::Context context = kit::make_context(threads);
  kit::RowBits<T> bits(context.get(), 3, kLength);
  bits.batch_invariant = batch_invariant;
  return kit::count_changes(bits, kLength, {16, 1});
}

TEST(CpuBatchInvariant, BitsAreOfTheSequenceAlone) {
  for (const int threads : {1, 3}) {
    EXPECT_EQ(count_changes<float>(threads, 1), 0);
    EXPECT_EQ(count_changes<uint16_t>(threads, 1), 0);
  }
}

// The reference computes every row by itself.
TEST(CpuBatchInvariant, Without_SomeChange) {
  EXPECT_EQ(count_changes<float>(1, 0) > 0, kit::tests_cpu());
}

TEST(CpuBatchInvariant, RefusesWhatContradictsIt) {
  const kit::Context context = kit::make_context(1);
  verify::Config c;
  const verify::Tensors tensors = verify::make_tensors(c);
  fa3_forward_args args = verify::forward_args(c, tensors);
  const auto refusal = [&] {
    fa3_plan* plan = nullptr;
    EXPECT_EQ(fa3_plan_forward(context.get(), &args, &plan), FA3_INVALID_ARGUMENT);
    return std::string(fa3_last_error());
  };
  args.batch_invariant = 2;
  EXPECT_NE(refusal().find("batch_invariant=2"), std::string::npos) << fa3_last_error();
  args.batch_invariant = 1, args.num_splits = 3;
  EXPECT_NE(refusal().find("num_splits=3 with batch_invariant"), std::string::npos);
}

}  // namespace
}  // namespace fa3
