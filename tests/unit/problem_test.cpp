// SPDX-License-Identifier: BSD-3-Clause
// problem_test.cpp — legal arguments become a Problem. Illegal ones: problem_refusals_test.cpp.
#include <cmath>
#include <limits>

#include "args_kit.h"

namespace fa3 {
namespace {

using test::dense_args;
using test::problem_of;
using test::tensor;
using test::varlen_args;

TEST(MakeProblem, Dense_ShapesAndDefaults) {
  const Problem p = problem_of(dense_args());
  EXPECT_EQ(p.op, FA3_OP_FORWARD);
  EXPECT_EQ(p.layout[kQ].dtype, FA3_F32);
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.q, (SeqAxis{false, false, 5, 5}));
  EXPECT_EQ(p.kv, (SeqAxis{false, false, 7, 7}));
  EXPECT_EQ(p.heads_q, 4);
  EXPECT_EQ(p.heads_kv, 2);
  EXPECT_EQ(p.head_dim_qk, 8);
  EXPECT_EQ(p.head_dim_v, 6);
  EXPECT_EQ(p.mask, FA3_MASK_FULL);
  EXPECT_EQ(p.softmax_scale, 1 / std::sqrt(8.0));
  EXPECT_EQ(p.softcap, 0);
  EXPECT_EQ(p.layout[kQ], (Layout{FA3_F32, 5 * 4 * 8, 4 * 8, 8}));
  EXPECT_EQ(p.layout[kLse], (Layout{FA3_F32, 4 * 5, 1, 5}));
  EXPECT_FALSE(p.layout[kDq].present());
}

TEST(MakeProblem, Varlen_ShapesAndBounds) {
  Args args = varlen_args();
  Problem p = problem_of(args);
  EXPECT_EQ(p.batch, 3);
  EXPECT_EQ(p.q, (SeqAxis{true, false, 10, 10})) << "no bound given: that of all rows";
  EXPECT_EQ(p.kv, (SeqAxis{true, false, 14, 14}));
  EXPECT_EQ(p.layout[kQ], (Layout{FA3_F32, 0, 4 * 8, 8}));
  EXPECT_EQ(p.layout[kLse], (Layout{FA3_F32, 0, 1, 10}));
  args.max_seqlen_q = 6;
  args.max_seqlen_kv = 1000;
  args.tensor[kSequsedKv] = tensor(FA3_I32, {3});
  p = problem_of(args);
  EXPECT_EQ(p.q.max_seqlen, 6);
  EXPECT_EQ(p.kv, (SeqAxis{true, true, 14, 14})) << "never more than there are rows";
}

TEST(MakeProblem, VarlenQueries_DenseKeys) {
  Args args = varlen_args();
  args.tensor[kCuSeqlensKv] = {};
  args.tensor[kK] = tensor(FA3_F32, {3, 7, 2, 8});
  args.tensor[kV] = tensor(FA3_F32, {3, 7, 2, 6});
  args.max_seqlen_kv = 3;  // ignored when dense
  const Problem p = problem_of(args);
  EXPECT_TRUE(p.q.varlen);
  EXPECT_EQ(p.kv, (SeqAxis{false, false, 7, 7}));
}

TEST(MakeProblem, StridedViews_KeepTheirStrides) {
  Args args = dense_args();
  args.tensor[kQ] =
      tensor(FA3_F32, {2, 5, 4, 8}, {640, 8, 160, 1});            // BHSD, every other batch entry
  args.tensor[kK] = tensor(FA3_F32, {2, 7, 2, 8}, {0, 8, 0, 1});  // broadcast over batch and heads
  const Problem p = problem_of(args);
  EXPECT_EQ(p.layout[kQ], (Layout{FA3_F32, 640, 8, 160}));
  EXPECT_EQ(p.layout[kK], (Layout{FA3_F32, 0, 8, 0}));
}

TEST(MakeProblem, OutputsInFp32_BesideHalfInputs) {
  Args args = dense_args(FA3_OP_BACKWARD, FA3_BF16);
  for (TensorId id : {kO, kDout, kDq, kDk, kDv}) args.tensor[id].dtype = FA3_F32;
  EXPECT_EQ(problem_of(args).layout[kDq].dtype, FA3_F32);
}

TEST(MakeProblem, Backward_AnyGradientMayBeAbsent) {
  Args args = dense_args(FA3_OP_BACKWARD);
  for (TensorId id : {kDlse, kDq, kDk, kDv}) {
    args.tensor[id] = {};
    EXPECT_FALSE(problem_of(args).layout[id].present());
  }
}

TEST(MakeProblem, EmptyDimensions_AreLegal) {
  for (int d : {0, 1}) {  // batch; seqlen_q and seqlen_kv
    Args args = dense_args(FA3_OP_BACKWARD);
    for (TensorId id : {kQ, kK, kV, kO, kDout, kDq, kDk, kDv}) args.tensor[id].shape[d] = 0;
    for (TensorId id : {kLse, kDlse}) args.tensor[id].shape[d == 0 ? 0 : 2] = 0;
    problem_of(args);
  }
  Args no_heads = dense_args();
  for (TensorId id : {kQ, kK, kV, kO}) no_heads.tensor[id].shape[2] = 0;
  no_heads.tensor[kLse].shape[1] = 0;
  EXPECT_EQ(problem_of(no_heads).heads_kv, 0);
  Args no_queries = dense_args();  // 0 query heads are a multiple of 2 KV heads
  no_queries.tensor[kQ].shape[2] = no_queries.tensor[kO].shape[2] =
      no_queries.tensor[kLse].shape[1] = 0;
  EXPECT_EQ(problem_of(no_queries).heads_q, 0);
  Args no_sequences = varlen_args();
  for (TensorId id : {kCuSeqlensQ, kCuSeqlensKv}) no_sequences.tensor[id].shape[0] = 1;
  EXPECT_EQ(problem_of(no_sequences).batch, 0);
}

TEST(MakeProblem, Window_SidesAndUnboundedOnes) {
  Args args = dense_args();
  args.mask = FA3_MASK_WINDOW;
  args.options.left = 3;
  args.options.right = -1;
  Problem p = problem_of(args);
  EXPECT_EQ(p.left, 3);
  EXPECT_EQ(p.right, -1);
  args.options.left =
      std::numeric_limits<int64_t>::max();  // sees all: no sum with it can overflow later
  EXPECT_EQ(problem_of(args).left, -1);
}

TEST(MakeProblem, HeadDims_OneAnd512) {
  Args args = dense_args();
  for (const TensorId id : {kQ, kK}) test::resize(args.tensor[id], 3, 1);
  for (const TensorId id : {kV, kO}) test::resize(args.tensor[id], 3, 512);
  EXPECT_EQ(problem_of(args).head_dim_v, 512);
}

// Strides between absent elements: a problem like any other of those shapes.
TEST(MakeProblem, StridesOfExtentOne_AreIgnored) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  Args dense = dense_args(), odd = dense;
  for (Args* args : {&dense, &odd}) {
    args->tensor[kQ] = tensor(FA3_F32, {1, 5, 1, 8});
    args->tensor[kK] = tensor(FA3_F32, {1, 7, 1, 8});
    args->tensor[kV] = tensor(FA3_F32, {1, 7, 1, 1});
    args->tensor[kO] = tensor(FA3_F32, {1, 5, 1, 1});
    args->tensor[kLse] = tensor(FA3_F32, {1, 1, 5});
  }
  for (const TensorId id : {kQ, kK}) {
    odd.tensor[id].stride[0] = kMost;
    odd.tensor[id].stride[2] = -3;
  }
  for (const TensorId id : {kV, kO}) odd.tensor[id].stride[3] = kMost;
  odd.tensor[kLse].stride[0] = odd.tensor[kLse].stride[1] = 0;
  EXPECT_EQ(problem_of(odd), problem_of(dense));
}

TEST(MakeProblem, StridesOfOneElement_AreIgnored) {
  Args args = dense_args();
  for (const TensorId id : {kQ, kK, kV, kO}) args.tensor[id] = tensor(FA3_F32, {1, 1, 1, 1});
  args.tensor[kLse] = tensor(FA3_F32, {1, 1, 1});
  args.tensor[kSequsedKv] = tensor(FA3_I32, {1});
  for (fa3_tensor& t : args.tensor) std::fill_n(t.stride, t.rank, 0);
  problem_of(args);
}

TEST(MakeProblem, StridesWithoutElements_AreIgnored) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const std::initializer_list<int64_t>& stride :
       {std::initializer_list<int64_t>{0, 0, 0, 0}, {0, -5, 7, 2}, {kMost, kMost, kMost, kMost}}) {
    Args args = dense_args();
    args.tensor[kQ] = tensor(FA3_F32, {2, 0, 4, 8}, stride);
    args.tensor[kO] = tensor(FA3_F32, {2, 0, 4, 6}, stride);
    args.tensor[kLse] = tensor(FA3_F32, {2, 4, 0}, {stride.begin()[0], 1, 1});
    problem_of(args);
  }
}

TEST(MakeProblem, LastStride_IsFreeForOneElement) {
  Args args = dense_args();
  args.tensor[kQ] = tensor(FA3_F32, {2, 5, 4, 1}, {40, 8, 2, 2});
  args.tensor[kK] = tensor(FA3_F32, {2, 7, 2, 1});
  problem_of(args);
}

}  // namespace
}  // namespace fa3
