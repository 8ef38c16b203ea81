// SPDX-License-Identifier: BSD-3-Clause
// fwd_launch_test.cpp — what a launch of the Hopper forward is given for tensors of more than 2^31
// elements and 2^40 bytes, where a 32-bit intermediate would show.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "device/sm90/common/ragged.h"
#include "device/sm90/fwd/args.h"
#include "plan/sm90/ahead.h"
#include "tests/unit/recorder.h"

namespace fa3::sm90 {
namespace {

struct Recorder : test::Recorder<FwdArgs> {
  u64 memory = 0;  // where all tensors begin
};

constexpr int64_t kBatch = 64, kRows = int64_t{1} << 20, kHeads = 64, kD = 128;
constexpr int64_t kBatchStride = kRows * kHeads * kD;  // 2^33 elements

Problem problem(bool varlen) {
  Problem p;
  p.batch = kBatch;
  p.heads_q = p.heads_kv = kHeads;
  p.head_dim_qk = p.head_dim_v = kD;
  for (SeqAxis* axis : {&p.q, &p.kv}) {
    axis->varlen = varlen;
    axis->rows = varlen ? kRows * kBatch : kRows;
    axis->max_seqlen = kRows;
  }
  p.softmax_scale = 0.1;
  for (const TensorId id : {kQ, kK, kV, kO})
    p.layout[id] = {FA3_BF16, varlen ? 0 : kBatchStride, kHeads * kD, kD};
  p.layout[kLse] = {FA3_F32, varlen ? 0 : kRows * kHeads, 1, varlen ? kRows * kBatch : kRows};
  return p;
}

Recorder launched(const Problem& p, bool is_ahead = false) {
  DeviceInfo gpu;
  gpu.type = FA3_DEVICE_CUDA;
  gpu.multiprocessors = 132;
  const Result<FwdPlan> plan = is_ahead ? ahead_fwd_plan(p, gpu) : make_fwd_plan(p, gpu);
  EXPECT_TRUE(plan.ok()) << plan.status().message;
  Recorder runtime;
  alignas(16) static std::byte memory[16];
  Buffers buffers;
  for (void*& data : buffers.data) data = memory;
  runtime.memory = reinterpret_cast<u64>(memory);
  const Status status = launch(plan_with(p, {plan.value()}), runtime, {}, buffers, memory);
  EXPECT_TRUE(status.ok()) << status.message;
  return runtime;
}

TEST(FwdLaunch, ManyElements_StridesIn64Bits) {
  const Recorder runtime = launched(problem(false));
  for (const char* name : {"q", "k", "v", "o"}) {
    SCOPED_TRACE(name);
    const TensorMapSpec& spec = runtime.specs.at(name);
    ASSERT_EQ(spec.rank, 4);
    EXPECT_EQ(spec.dim[1], u64{kRows});
    EXPECT_EQ(spec.dim[3], u64{kBatch});
    EXPECT_EQ(spec.stride_bytes[1], u64{2 * kHeads * kD});
    EXPECT_EQ(spec.stride_bytes[2], u64{2 * kD});
    EXPECT_EQ(spec.stride_bytes[3], u64{2 * kBatchStride});  // 2^34
  }
  EXPECT_EQ(runtime.args.lse_batch, kRows * kHeads);
  EXPECT_EQ(runtime.args.lse_head, kRows);
  EXPECT_EQ(runtime.args.order.tiles(), u32{(kRows + 191) / 192 * kHeads * kBatch});
}

// The ragged maps' dimensions x, y and z (fwd_args.h): an address is 64-bit arithmetic modulo 2^64,
// and equals that of the row for the first, a middle and the last sequence.
TEST(FwdLaunch, ManyVarlenElements_AddressesOfRows) {
  Problem p = problem(true);
  const Recorder runtime = launched(p);
  const TensorMapSpec& spec = runtime.specs.at("k");
  ASSERT_EQ(spec.rank, 5);
  for (const u64 sequence : {u64{0}, u64{31}, u64{kBatch - 1}}) {
    for (const u64 row : {u64{0}, u64{1}, u64{kRows - 1}}) {
      const u64 begin = sequence * kRows, rows = kRows;
      const u64 x = kRaggedRows - rows + row, y = begin + rows, z = kRaggedRows;
      EXPECT_LT(x, spec.dim[1]);
      EXPECT_LT(y, spec.dim[2]);
      EXPECT_LT(z, spec.dim[3]);
      const u64 address =
          x * spec.stride_bytes[1] + y * spec.stride_bytes[2] + z * spec.stride_bytes[3];
      EXPECT_EQ(address, 2 * (begin + row) * kHeads * kD) << sequence << ", " << row;
    }
    // The row after the sequence's last is outside of x, whatever follows in memory.
    EXPECT_EQ(kRaggedRows - u64{kRows} + kRows, spec.dim[1]);
  }
}

// Equal lengths in a ragged kernel, as the simulator has it for a softcap: adjacent sequences.
TEST(FwdLaunch, EqualLengthsInARaggedKernel_AddressesOfRows) {
  Problem p = problem(false);
  p.softcap = 5;
  for (const TensorId id : {kQ, kK, kV, kO})
    p.layout[id] = {FA3_BF16, kHeads * kD, kBatch * kHeads * kD, kD};
  const Recorder runtime = launched(p, true);
  EXPECT_EQ(runtime.args.kv_axis.batch_rows, 1);
  const TensorMapSpec& spec = runtime.specs.at("k");
  ASSERT_EQ(spec.rank, 5);
  for (const u64 sequence : {u64{0}, u64{31}, u64{kBatch - 1}}) {
    for (const u64 row : {u64{0}, u64{1}, u64{kRows - 1}}) {
      const u64 x = kRaggedRows - kRows + row, y = sequence + kRows, z = kRaggedRows;
      const u64 address = reinterpret_cast<u64>(spec.base) + x * spec.stride_bytes[1] +
                          y * spec.stride_bytes[2] + z * spec.stride_bytes[3];
      EXPECT_EQ(address - runtime.memory, 2 * (row * kBatch + sequence) * kHeads * kD)
          << sequence << ", " << row;
    }
  }
}

// Every tensor that TMA touches, and none that it does not.
TEST(FwdLaunch, Misaligned_DeclinedByName) {
  alignas(16) static char memory[32];
  const std::pair<TensorId, const char*> tensors[] = {{kQ, "q"}, {kK, "k"}, {kV, "v"}, {kO, "o"}};
  Problem p = problem(false);
  for (const auto& [id, name] : tensors) {
    Buffers buffers;
    for (void*& data : buffers.data) data = memory;
    buffers.data[kLse] = memory + 4;
    EXPECT_TRUE(check_addresses(plan_with(p, {FwdPlan{}}), buffers).ok());
    buffers.data[id] = memory + 6;
    const Status status = check_addresses(plan_with(p, {FwdPlan{}}), buffers);
    EXPECT_EQ(status.code, FA3_UNSUPPORTED);
    for (const std::string& part : {fmt::format("{}.data=", name), std::string("6 bytes past"),
                                    std::string("multiple of 16"), std::string("copy")})
      EXPECT_NE(status.message.find(part), std::string::npos) << status.message;
  }
  Buffers buffers;
  for (void*& data : buffers.data) data = memory;
  buffers.data[kK] = buffers.data[kV] = memory + 2;
  p.kv.rows = 0;
  EXPECT_TRUE(check_addresses(plan_with(p, {FwdPlan{}}), buffers).ok())
      << "no keys: nobody reads them";
  buffers.data[kO] = memory + 2;
  p.batch = 0;
  EXPECT_TRUE(check_addresses(plan_with(p, {FwdPlan{}}), buffers).ok())
      << "no sequences: nothing runs";
  p.q.varlen = true;
  EXPECT_EQ(check_addresses(plan_with(p, {FwdPlan{}}), buffers).code, FA3_UNSUPPORTED)
      << "rows of no sequence: O = 0";
  buffers.data[kQ] = memory + 2;
  p.q.rows = 0;
  EXPECT_TRUE(check_addresses(plan_with(p, {FwdPlan{}}), buffers).ok())
      << "no queries: nothing runs";
}

}  // namespace
}  // namespace fa3::sm90
