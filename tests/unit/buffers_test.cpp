// SPDX-License-Identifier: BSD-3-Clause
// buffers_test.cpp — addresses, overlaps and the values of cu_seqlens and seqused.
#include "api/buffers.h"

#include "api/problem.h"
#include "args_kit.h"

namespace fa3 {
namespace {

using test::expect_refusal;
using test::tensor;

// Arguments with memory of their own for every present tensor; cu_seqlens 0, 4, 4, 10 and 0, 5,
// 9, 14.
struct Memory {
  Args args;
  std::vector<std::vector<int32_t>> words;

  explicit Memory(const Args& shapes) : args(shapes) {
    words.reserve(kTensorCount);
    for (fa3_tensor& t : args.tensor) {
      if (t.rank == 0) continue;
      words.emplace_back(1024, 0);
      t.data = words.back().data();
    }
    if (args.tensor[kCuSeqlensQ].rank != 0) set(kCuSeqlensQ, {0, 4, 4, 10});
    if (args.tensor[kCuSeqlensKv].rank != 0) set(kCuSeqlensKv, {0, 5, 9, 14});
  }
  void set(TensorId id, const std::vector<int32_t>& values) {
    std::copy(values.begin(), values.end(), static_cast<int32_t*>(args.tensor[id].data));
  }
  Status check() const {
    const Result<Problem> problem = make_problem(args);
    EXPECT_TRUE(problem.ok()) << problem.status().message;
    return make_buffers(args, problem.value()).status();
  }
};

Args varlen_with_seqused() {
  Args args = test::varlen_args();
  args.tensor[kSequsedQ] = args.tensor[kSequsedKv] = tensor(FA3_I32, {3});
  return args;
}

TEST(MakeBuffers, SeparateMemory_Accepted) {
  EXPECT_TRUE(Memory(test::dense_args()).check().ok());
  EXPECT_TRUE(Memory(test::dense_args(FA3_OP_BACKWARD)).check().ok());
  EXPECT_TRUE(Memory(varlen_with_seqused()).check().ok());
}

TEST(MakeBuffers, AddressesInOrder) {
  const Memory memory(test::dense_args());
  const Result<Buffers> buffers = make_buffers(memory.args, make_problem(memory.args).value());
  ASSERT_TRUE(buffers.ok());
  for (int i = 0; i < kTensorCount; ++i)
    EXPECT_EQ(buffers.value().data[i], memory.args.tensor[i].data);
}

TEST(MakeBuffers, NullData_RefusedByName) {
  for (TensorId id : {kQ, kK, kV, kO, kLse}) {
    Memory memory(test::dense_args());
    memory.args.tensor[id].data = nullptr;
    expect_refusal(memory.check(), FA3_INVALID_ARGUMENT,
                   {std::string(tensor_name(id)) + ".data is NULL"});
  }
}

TEST(MakeBuffers, NullDataWithoutElements_Accepted) {
  Args args = test::dense_args();
  for (TensorId id : {kQ, kK, kV, kO, kLse}) args.tensor[id].shape[0] = 0;
  EXPECT_TRUE(make_buffers(args, make_problem(args).value()).ok());
}

TEST(MakeBuffers, Misaligned_Refused) {
  Memory memory(test::dense_args());
  memory.args.tensor[kK].data = static_cast<char*>(memory.args.tensor[kK].data) + 2;
  expect_refusal(memory.check(), FA3_INVALID_ARGUMENT, {"k.data", "aligned", "4 bytes"});
  Memory half(test::dense_args(FA3_OP_FORWARD, FA3_F16));
  half.args.tensor[kK].data = static_cast<char*>(half.args.tensor[kK].data) + 2;
  EXPECT_TRUE(half.check().ok());
}

TEST(MakeBuffers, EndOfAddressSpace_Refused) {
  Memory memory(test::dense_args());
  memory.args.tensor[kQ].data = reinterpret_cast<void*>(UINTPTR_MAX - 3);
  expect_refusal(memory.check(), FA3_INVALID_ARGUMENT, {"q at", "end of the address space"});
}

TEST(MakeBuffers, OutputOnAnyOtherTensor_Refused) {
  for (TensorId other : {kQ, kK, kV, kLse, kCuSeqlensQ, kCuSeqlensKv, kSequsedQ, kSequsedKv}) {
    Memory memory(varlen_with_seqused());
    memory.args.tensor[kO].data = memory.args.tensor[other].data;
    expect_refusal(memory.check(), FA3_INVALID_ARGUMENT,
                   {"forward: o (bytes 0x", tensor_name(other), "shares elements"});
  }
  for (TensorId out : {kDq, kDk, kDv}) {
    for (TensorId other : {kQ, kK, kV, kO, kLse, kDout, kDlse}) {
      Memory memory(test::dense_args(FA3_OP_BACKWARD));
      memory.args.tensor[out].data = memory.args.tensor[other].data;
      expect_refusal(memory.check(), FA3_INVALID_ARGUMENT,
                     {tensor_name(out), tensor_name(other), "shares elements"});
    }
  }
  Memory memory(test::dense_args(FA3_OP_BACKWARD));
  memory.args.tensor[kDv].data = memory.args.tensor[kDk].data;
  expect_refusal(memory.check(), FA3_INVALID_ARGUMENT, {"dk", "dv", "shares elements"});
}

TEST(MakeBuffers, OutputOnSlopesOrIds_Refused) {
  Args args = test::dense_args();
  args.tensor[kAlibiSlopes] = tensor(FA3_F32, {4});
  args.tensor[kSequenceIdsQ] = tensor(FA3_I32, {2, 5});
  args.tensor[kSequenceIdsKv] = tensor(FA3_I32, {2, 7});
  EXPECT_TRUE(Memory(args).check().ok());
  for (TensorId other : {kAlibiSlopes, kSequenceIdsQ, kSequenceIdsKv}) {
    Memory memory(args);
    memory.args.tensor[kO].data = memory.args.tensor[other].data;
    expect_refusal(memory.check(), FA3_INVALID_ARGUMENT,
                   {"forward: o (bytes 0x", tensor_name(other), "shares elements"});
    Memory null(args);
    null.args.tensor[other].data = nullptr;
    expect_refusal(null.check(), FA3_INVALID_ARGUMENT,
                   {std::string(tensor_name(other)) + ".data is NULL"});
  }
}

TEST(MakeBuffers, InputsMayShare) {
  Memory memory(test::dense_args());
  memory.args.tensor[kK].data = memory.args.tensor[kQ].data;
  EXPECT_TRUE(memory.check().ok());
}

TEST(MakeBuffers, VarlenGradients_AreLegal) {
  // One buffer (tokens 10, heads 4 + 2 + 2, dim 8) holds dq, dk and dv next to each other.
  Args args;
  args.op = FA3_OP_BACKWARD;
  const auto rows = [](int64_t heads) { return tensor(FA3_F32, {1, 10, heads, 8}); };
  for (TensorId id : {kQ, kO, kDout}) args.tensor[id] = rows(4);
  for (TensorId id : {kK, kV}) args.tensor[id] = rows(2);
  args.tensor[kLse] = tensor(FA3_F32, {1, 4, 10});
  for (TensorId id : {kDq, kDk, kDv})
    args.tensor[id] = tensor(FA3_F32, {1, 10, id == kDq ? 4 : 2, 8}, {640, 64, 8, 1});
  Memory memory(args);
  float* varlen = static_cast<float*>(memory.args.tensor[kDq].data);
  memory.args.tensor[kDk].data = varlen + 32;
  memory.args.tensor[kDv].data = varlen + 48;
  EXPECT_TRUE(memory.check().ok());
  memory.args.tensor[kDv].data = varlen + 47;  // one element into dk
  expect_refusal(memory.check(), FA3_INVALID_ARGUMENT, {"dk", "dv", "shares elements"});
}

TEST(MakeBuffers, CuSeqlens_FirstBadEntryIsNamed) {
  const auto refuse = [](const std::vector<int32_t>& values, const std::vector<std::string>& parts,
                         int64_t max = 0) {
    Memory memory(test::varlen_args());
    memory.set(kCuSeqlensQ, values);
    memory.args.max_seqlen_q = max;
    expect_refusal(memory.check(), FA3_INVALID_ARGUMENT, parts);
  };
  refuse({1, 4, 4, 10}, {"cu_seqlens_q[0]=1", "need 0"});
  refuse({0, 4, 3, 2}, {"cu_seqlens_q[2]=3", "cu_seqlens_q[1]=4", "never decrease"});
  refuse({0, 4, 4, 11}, {"cu_seqlens_q[3]=11", "10 rows"});
  refuse({0, 4, INT32_MAX, INT32_MIN}, {"cu_seqlens_q[2]=2147483647", "10 rows"});
  refuse({0, INT32_MIN, 0, 10}, {"cu_seqlens_q[1]=-2147483648"});
  refuse({0, 4, 4, 10}, {"cu_seqlens_q[3]−cu_seqlens_q[2]=6", "max_seqlen_q=5"}, 5);
  Memory keys(test::varlen_args());
  keys.set(kCuSeqlensKv, {0, 5, 9, 15});
  expect_refusal(keys.check(), FA3_INVALID_ARGUMENT, {"cu_seqlens_kv[3]=15", "14 rows"});
}

TEST(MakeBuffers, CuSeqlensShortOfTheEnd_IsLegal) {
  Memory memory(test::varlen_args());
  memory.set(kCuSeqlensQ, {0, 0, 3, 7});
  EXPECT_TRUE(memory.check().ok());
}

TEST(MakeBuffers, Seqused_WithinItsSequence) {
  Memory memory(varlen_with_seqused());
  memory.set(kSequsedQ, {4, 0, 7});
  expect_refusal(memory.check(), FA3_INVALID_ARGUMENT, {"seqused_q[2]=7", "0…6"});
  memory.set(kSequsedQ, {4, 1, 6});
  expect_refusal(memory.check(), FA3_INVALID_ARGUMENT, {"seqused_q[1]=1", "0…0"});
  memory.set(kSequsedQ, {4, 0, 6});
  memory.set(kSequsedKv, {-1, 0, 0});
  expect_refusal(memory.check(), FA3_INVALID_ARGUMENT, {"seqused_kv[0]=-1", "0…5"});
  Args dense = test::dense_args();
  dense.tensor[kSequsedKv] = tensor(FA3_I32, {2});
  Memory of_dense(dense);
  of_dense.set(kSequsedKv, {7, 8});
  expect_refusal(of_dense.check(), FA3_INVALID_ARGUMENT, {"seqused_kv[1]=8", "0…7"});
}

TEST(CheckWorkspace, SizeAndPlace) {
  Memory memory(test::dense_args());
  std::vector<std::byte> bytes(100);
  EXPECT_TRUE(check_workspace(memory.args, nullptr, 0, 0).ok());
  EXPECT_TRUE(check_workspace(memory.args, bytes.data(), 100, 100).ok());
  expect_refusal(check_workspace(memory.args, bytes.data(), 99, 100), FA3_WORKSPACE_TOO_SMALL,
                 {"99 bytes", "need 100"});
  expect_refusal(check_workspace(memory.args, nullptr, 100, 100), FA3_WORKSPACE_TOO_SMALL,
                 {"NULL", "need 100"});
  expect_refusal(check_workspace(memory.args, memory.args.tensor[kV].data, 100, 100),
                 FA3_INVALID_ARGUMENT, {"workspace", "v (bytes"});
}

}  // namespace
}  // namespace fa3
