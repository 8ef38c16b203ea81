// SPDX-License-Identifier: BSD-3-Clause
// merge_launch_test.cpp — what a launch of Hopper's kernel for fa3_combine is given: strides, when
// rows are wide, and grids of many rows.
#include <gtest/gtest.h>

#include "device/sm90/merge/args.h"
#include "tests/unit/args_kit.h"
#include "tests/unit/recorder.h"

namespace fa3::sm90 {
namespace {

using test::tensor;

using Recorder = test::Recorder<MergeArgs>;

// 3 parts, batch 2, 5 rows, 4 heads.
Args call(fa3_dtype parts, fa3_dtype o, int64_t columns) {
  Args args;
  args.op = FA3_OP_COMBINE;
  args.tensor[kOParts] = tensor(parts, {3, 2, 5, 4, columns});
  args.tensor[kLseParts] = tensor(FA3_F32, {3, 2, 4, 5});
  args.tensor[kMergedO] = tensor(o, {2, 5, 4, columns});
  return args;
}

// past: bytes from an address of whole 16 bytes to that of O.
Recorder launched(const Args& args, size_t past = 0) {
  const Problem p = test::problem_of(args);
  const Result<MergePlan> plan = make_merge_plan(p);
  EXPECT_TRUE(plan.ok()) << plan.status().message;
  Recorder runtime;
  alignas(16) static std::byte memory[32];
  Buffers buffers;
  for (void*& data : buffers.data) data = memory;
  buffers.data[kMergedO] = memory + past;
  buffers.data[kMergedLse] = nullptr;
  const Status status = launch(plan_with(p, {plan.value()}), runtime, {}, buffers, nullptr);
  EXPECT_TRUE(status.ok()) << status.message;
  return runtime;
}

TEST(MergeLaunch, Strides) {
  const Recorder runtime = launched(call(FA3_F32, FA3_BF16, 128));
  const MergeArgs& args = runtime.args;
  EXPECT_EQ(args.o_parts.part, 2 * 5 * 4 * 128);
  EXPECT_EQ(args.o_parts.batch, 5 * 4 * 128);
  EXPECT_EQ(args.o_parts.row, 4 * 128);
  EXPECT_EQ(args.o_parts.head, 128);
  EXPECT_EQ(args.lse_parts.part, 2 * 4 * 5);
  EXPECT_EQ(args.lse_parts.head, 5);
  EXPECT_EQ(args.lse_parts.row, 1);
  EXPECT_EQ(args.lse.data, nullptr);
  EXPECT_EQ(args.row_pieces, 2u);  // of 64 columns of F32
  EXPECT_EQ(args.pieces, 2u * 5 * 4);
  EXPECT_EQ(runtime.shape.grid[0], args.pieces / MergeConfig::kPieces);
  EXPECT_EQ(runtime.shape.grid[1], 2u);
}

TEST(MergeLaunch, RowsAreWide_WhereAllBeginAt16Bytes) {
  EXPECT_TRUE(launched(call(FA3_F32, FA3_F32, 4)).args.wide);
  EXPECT_TRUE(launched(call(FA3_BF16, FA3_F16, 8)).args.wide);
  EXPECT_FALSE(launched(call(FA3_BF16, FA3_F32, 12)).args.wide) << "half a piece of a lane";
  EXPECT_FALSE(launched(call(FA3_F32, FA3_BF16, 12)).args.wide) << "rows of O are 24 bytes";
  EXPECT_FALSE(launched(call(FA3_F32, FA3_F32, 64), 4).args.wide) << "the address of O";
  Args apart = call(FA3_F32, FA3_F32, 64);
  apart.tensor[kOParts].stride[0] += 2;
  EXPECT_FALSE(launched(apart).args.wide) << "parts";
}

TEST(MergeLaunch, ManyRows) {
  Args args = call(FA3_F16, FA3_F16, 64);
  for (const TensorId id : {kOParts, kLseParts}) test::resize(args.tensor[id], 1, 100'000);
  test::resize(args.tensor[kMergedO], 0, 100'000);
  EXPECT_EQ(launched(args).shape.grid[1], 65535u);
  Problem p = test::problem_of(args);
  p.q.rows = int64_t{1} << 29;  // in 4 heads
  test::expect_refusal(make_merge_plan(p).status(), FA3_UNSUPPORTED,
                       {"536870912 rows of 4 heads and 64 columns", "2147483648 pieces", "2^31"});
}

}  // namespace
}  // namespace fa3::sm90
