// SPDX-License-Identifier: BSD-3-Clause
// args_test.cpp — struct_size, and both C structs as one.
#include "api/args.h"

#include <cstring>
#include <utility>

#include "args_kit.h"

namespace fa3 {
namespace {

using test::expect_refusal;

fa3_forward_args forward_args() {
  fa3_forward_args args{};
  args.struct_size = sizeof args;
  args.q.rank = 4;
  args.softcap = 2.5;  // the last field of the first release
  return args;
}

TEST(ReadArgs, Forward_CopiesEveryField) {
  fa3_forward_args c = forward_args();
  fa3_tensor* tensors[] = {&c.q,
                           &c.k,
                           &c.v,
                           &c.o,
                           &c.lse,
                           &c.cu_seqlens_q,
                           &c.cu_seqlens_kv,
                           &c.seqused_q,
                           &c.seqused_kv,
                           &c.alibi_slopes,
                           &c.sequence_ids_q,
                           &c.sequence_ids_kv,
                           &c.attn_mask};
  for (int i = 0; i < 13; ++i) tensors[i]->shape[0] = 100 + i;
  c.mask_alignment = 8;
  c.max_seqlen_q = 1, c.max_seqlen_kv = 2, c.mask = 3, c.left = 5, c.right = 6, c.softmax_scale = 7;
  const Result<Args> args = read_args(FA3_OP_FORWARD, &c);
  ASSERT_TRUE(args.ok());
  EXPECT_EQ(args.value().mask_alignment, 8);
  const TensorId ids[] = {
      kQ,           kK,        kV,         kO,           kLse,          kCuSeqlensQ,
      kCuSeqlensKv, kSequsedQ, kSequsedKv, kAlibiSlopes, kSequenceIdsQ, kSequenceIdsKv,
      kAttnMask};
  for (int i = 0; i < 13; ++i) EXPECT_EQ(args.value().tensor[ids[i]].shape[0], 100 + i);
  EXPECT_EQ(args.value().max_seqlen_q, 1);
  EXPECT_EQ(args.value().max_seqlen_kv, 2);
  EXPECT_EQ(args.value().mask, 3);
  EXPECT_EQ(args.value().options.left, 5);
  EXPECT_EQ(args.value().options.right, 6);
  EXPECT_EQ(args.value().options.softmax_scale, 7);
  EXPECT_EQ(args.value().options.softcap, 2.5);
}

TEST(ReadArgs, Backward_CopiesEveryTensor) {
  fa3_backward_args c{};
  c.struct_size = sizeof c;
  const std::pair<fa3_tensor*, TensorId> tensors[] = {{&c.q, kQ},
                                                      {&c.k, kK},
                                                      {&c.v, kV},
                                                      {&c.o, kO},
                                                      {&c.lse, kLse},
                                                      {&c.dout, kDout},
                                                      {&c.dlse, kDlse},
                                                      {&c.dq, kDq},
                                                      {&c.dk, kDk},
                                                      {&c.dv, kDv},
                                                      {&c.alibi_slopes, kAlibiSlopes},
                                                      {&c.sequence_ids_q, kSequenceIdsQ},
                                                      {&c.sequence_ids_kv, kSequenceIdsKv},
                                                      {&c.attn_mask, kAttnMask},
                                                      {&c.dattn_mask, kDattnMask},
                                                      {&c.cu_seqlens_q, kCuSeqlensQ},
                                                      {&c.cu_seqlens_kv, kCuSeqlensKv},
                                                      {&c.seqused_q, kSequsedQ},
                                                      {&c.seqused_kv, kSequsedKv}};
  int64_t next = 100;
  for (const auto& [tensor, id] : tensors) tensor->shape[0] = next++;
  c.deterministic = 1;
  const Result<Args> args = read_args(FA3_OP_BACKWARD, &c);
  ASSERT_TRUE(args.ok());
  EXPECT_EQ(args.value().deterministic, 1);
  next = 100;
  for (const auto& [tensor, id] : tensors)
    EXPECT_EQ(args.value().tensor[id].shape[0], next++) << tensor_name(id);
}

// Callers of releases before the field was there.
TEST(ReadArgs, BackwardWithoutDeterministic_IsNotDeterministic) {
  fa3_backward_args c{};
  c.struct_size = offsetof(fa3_backward_args, deterministic);
  c.deterministic = 1;
  const Result<Args> args = read_args(FA3_OP_BACKWARD, &c);
  ASSERT_TRUE(args.ok());
  EXPECT_EQ(args.value().deterministic, 0);
}

// Of a program that knows no v_image.
TEST(ReadArgs, SmallerForward_HasNoImage) {
  fa3_forward_args c = forward_args();
  const int64_t shape[] = {1, 1, 1, 32, 32};
  c.v_image = fa3_dense(nullptr, FA3_F8_E4M3, 5, shape);
  c.v_image_layout = FA3_V_IMAGE_SM90;
  EXPECT_EQ(read_args(FA3_OP_FORWARD, &c).value().tensor[kVImage].rank, 5);
  c.struct_size = offsetof(fa3_forward_args, v_image);
  const Result<Args> args = read_args(FA3_OP_FORWARD, &c);
  ASSERT_TRUE(args.ok()) << args.status().message;
  EXPECT_EQ(args.value().tensor[kVImage].rank, 0);
  EXPECT_EQ(args.value().v_image_layout, FA3_V_IMAGE_NONE);
}

TEST(ReadArgs, WithoutAMask_HasNone) {
  fa3_forward_args f = forward_args();
  f.struct_size = offsetof(fa3_forward_args, attn_mask);
  f.attn_mask.rank = 4;
  f.mask_alignment = FA3_ALIGN_TOP_LEFT;
  const Result<Args> forward = read_args(FA3_OP_FORWARD, &f);
  ASSERT_TRUE(forward.ok());
  EXPECT_EQ(forward.value().tensor[kAttnMask].rank, 0);
  EXPECT_EQ(forward.value().mask_alignment, 0);
  fa3_backward_args b{};
  b.struct_size = offsetof(fa3_backward_args, attn_mask);
  b.attn_mask.rank = b.dattn_mask.rank = 4;
  b.mask_alignment = FA3_ALIGN_TOP_LEFT;
  const Result<Args> backward = read_args(FA3_OP_BACKWARD, &b);
  ASSERT_TRUE(backward.ok());
  EXPECT_EQ(backward.value().tensor[kAttnMask].rank, 0);
  EXPECT_EQ(backward.value().tensor[kDattnMask].rank, 0);
  EXPECT_EQ(backward.value().mask_alignment, 0);
}

TEST(ReadArgs, ReservedFieldsThatAreNotZero_Refused) {
  const auto refuse = [](fa3_op op, auto c, auto change, const std::string& field) {
    c.struct_size = sizeof c;
    change(c);
    expect_refusal(read_args(op, &c).status(), FA3_INVALID_ARGUMENT, {field, "need 0"});
  };
  const fa3_forward_args f = forward_args();
  refuse(
      FA3_OP_FORWARD, f, [](auto& c) { c.reserved = 9; }, "forward: reserved=9");
  refuse(
      FA3_OP_FORWARD, f, [](auto& c) { c.v_image_reserved = -1; }, "v_image_reserved=-1");
  refuse(
      FA3_OP_FORWARD, f, [](auto& c) { c.mask_alignment_reserved = 1; }, "alignment_reserved=1");
  const fa3_backward_args b{};
  refuse(
      FA3_OP_BACKWARD, b, [](auto& c) { c.deterministic_reserved = 3; },
      "deterministic_reserved=3");
}

TEST(SameShapes, AnyScalarThatDiffers) {
  const Args args = test::dense_args();
  Args other = args;
  EXPECT_TRUE(same_shapes(args, other));
  other.options.softcap = 1;
  EXPECT_FALSE(same_shapes(args, other));
  other = args;
  other.scale_block[2].cols = 1;
  EXPECT_FALSE(same_shapes(args, other));
  other = args;
  other.mask_alignment = FA3_ALIGN_TOP_LEFT;
  EXPECT_FALSE(same_shapes(args, other));
}

TEST(ReadArgs, Null_Refused) {
  expect_refusal(read_args(FA3_OP_FORWARD, nullptr).status(), FA3_INVALID_ARGUMENT,
                 {"forward", "NULL"});
}

TEST(ReadArgs, UnknownOperation_Refused) {
  fa3_forward_args args = forward_args();
  expect_refusal(read_args(static_cast<fa3_op>(0), &args).status(), FA3_INVALID_ARGUMENT, {"op=0"});
}

TEST(ReadArgs, StructSizeBelowFirstRelease_Refused) {
  fa3_forward_args forward = forward_args();
  forward.struct_size = 0;
  expect_refusal(read_args(FA3_OP_FORWARD, &forward).status(), FA3_INVALID_ARGUMENT,
                 {"struct_size=0", "928"});
  forward.struct_size = 927;
  expect_refusal(read_args(FA3_OP_FORWARD, &forward).status(), FA3_INVALID_ARGUMENT,
                 {"struct_size=927", "928"});
  fa3_backward_args backward{};
  backward.struct_size = 1407;
  expect_refusal(read_args(FA3_OP_BACKWARD, &backward).status(), FA3_INVALID_ARGUMENT,
                 {"struct_size=1407", "1408"});
}

TEST(ReadArgs, StructSizeOfGarbage_RefusedWithoutReadingOn) {
  fa3_forward_args args = forward_args();
  args.struct_size = SIZE_MAX;
  expect_refusal(read_args(FA3_OP_FORWARD, &args).status(), FA3_INVALID_ARGUMENT,
                 {"struct_size=18446744073709551615", "need 928 to 65536"});
}

// A program built against a newer header: its struct continues after what this library knows.
struct NewerForwardArgs {
  fa3_forward_args known;
  unsigned char added[24];
};

TEST(ReadArgs, NewerStruct_AcceptedWhenUnknownBytesAreZero) {
  NewerForwardArgs newer{};
  newer.known = forward_args();
  newer.known.struct_size = sizeof newer;
  ASSERT_TRUE(read_args(FA3_OP_FORWARD, &newer).ok());
  newer.added[23] = 7;
  expect_refusal(read_args(FA3_OP_FORWARD, &newer).status(), FA3_INVALID_ARGUMENT,
                 {"struct_size=" + std::to_string(sizeof newer),
                  "byte " + std::to_string(sizeof newer - 1), "is 7", "need 0"});
}

// A program built against an older header, where the struct ended earlier: the bytes after it are
// not read.
TEST(ReadStruct, OlderStruct_MissingFieldsAreZero) {
  struct Ours {
    size_t struct_size;
    int64_t first;
    int64_t appended;
  };
  const Ours older{16, 5, 99};
  Ours copy{1, 1, 1};
  ASSERT_TRUE(read_struct("test", &older, 16, &copy, sizeof copy).ok());
  EXPECT_EQ(copy.first, 5);
  EXPECT_EQ(copy.appended, 0);
  expect_refusal(read_struct("test", &older, 17, &copy, sizeof copy), FA3_INVALID_ARGUMENT,
                 {"test", "16", "17"});
}

TEST(DropTensorsWithoutData, OptionalOnly) {
  float number = 0;
  Args args = test::dense_args();
  args.tensor[kSequsedQ] = test::tensor(FA3_I32, {2}, {}, &number);
  drop_tensors_without_data(args);
  EXPECT_EQ(args.tensor[kQ].rank, 4) << "required: stays, to be refused for its NULL";
  EXPECT_EQ(args.tensor[kLse].rank, 0);
  EXPECT_EQ(args.tensor[kSequsedQ].rank, 1) << "has data";
}

TEST(DropTensorsWithoutData, TensorWithoutElements_StaysPresent) {
  Args args = test::dense_args();
  args.tensor[kLse] = test::tensor(FA3_F32, {2, 0, 5});
  drop_tensors_without_data(args);
  EXPECT_EQ(args.tensor[kLse].rank, 3);
}

TEST(DropTensorsWithoutData, NonsenseRank_IsLeftForTheProblem) {
  Args args = test::dense_args();
  args.tensor[kLse] = test::tensor(FA3_F32, {0});
  args.tensor[kLse].rank = 1000;
  drop_tensors_without_data(args);
  EXPECT_EQ(args.tensor[kLse].rank, 1000);
}

}  // namespace
}  // namespace fa3
