// SPDX-License-Identifier: BSD-3-Clause
// problem_cache_test.cpp — page_table, kv_batch_idx and kv_begin: what they make of a problem, what
// is refused by name, and that plans for GPUs decline.
#include "args_kit.h"
#include "core/span.h"
#include "plan/plan.h"
#include "plan/sm90/roofline.h"

namespace fa3 {
namespace {

using test::dense_args;
using test::expect_refusal;
using test::problem_of;
using test::tensor;
using test::varlen_args;

// Of batch 2 and 4 query heads over 2: 9 pages of 3 rows, 5 of which a sequence may have.
Args paged_args() {
  Args args = dense_args();
  args.tensor[kK] = tensor(FA3_F32, {9, 3, 2, 8}, {96, 16, 48, 1});
  args.tensor[kV] = tensor(FA3_F32, {9, 3, 2, 6});
  args.tensor[kSequsedKv] = tensor(FA3_I32, {2});
  args.tensor[kPageTable] = tensor(FA3_I32, {2, 5});
  return args;
}

Args slot_args() {
  Args args = dense_args();
  args.tensor[kK] = tensor(FA3_F32, {9, 7, 2, 8});
  args.tensor[kV] = tensor(FA3_F32, {9, 7, 2, 6});
  args.tensor[kKvBatchIdx] = tensor(FA3_I32, {2});
  return args;
}

Args packed_args() {
  Args args = dense_args();
  args.tensor[kK] = tensor(FA3_F32, {20, 2, 8});
  args.tensor[kV] = tensor(FA3_F32, {20, 2, 6});
  args.tensor[kSequsedKv] = args.tensor[kKvBegin] = tensor(FA3_I32, {2});
  return args;
}

TEST(MakeProblem, Pages_AreRowsOfTheKeyAxis) {
  Args args = paged_args();
  Problem p = problem_of(args);
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.cache, (KvCache{9, 3, 5, false, false}));
  EXPECT_EQ(p.kv.rows, 15);
  EXPECT_EQ(p.kv.max_seqlen, 15);
  EXPECT_FALSE(p.kv.varlen);
  EXPECT_EQ(p.layout[kK], (Layout{FA3_F32, 96, 16, 48, 1}));
  EXPECT_EQ(span_of(p, kK), 8 * 96 + 2 * 16 + 48 + 8);
  EXPECT_EQ(elements_of(p, kPageTable), 10);
  args.max_seqlen_kv = 11;
  EXPECT_EQ(problem_of(args).kv.max_seqlen, 11);
  args.max_seqlen_kv = 99;
  EXPECT_EQ(problem_of(args).kv.max_seqlen, 15);
  args.tensor[kKvBegin] = tensor(FA3_I32, {2});
  EXPECT_TRUE(problem_of(args).cache.begins);
  args.tensor[kAttnMask] = tensor(FA3_BOOL, {1, 1, 5, 15});
  EXPECT_EQ(span_of(problem_of(args), kAttnMask), 75);
}

TEST(MakeProblem, Slots_AndKeysThatBeginAnywhere) {
  Problem p = problem_of(slot_args());
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.cache, (KvCache{9, 0, 0, true, false}));
  EXPECT_EQ(span_of(p, kV), 9 * 7 * 12);
  p = problem_of(packed_args());
  EXPECT_TRUE(p.kv.varlen);
  EXPECT_EQ(p.kv.max_seqlen, 20);
  EXPECT_EQ(p.cache, (KvCache{0, 0, 0, false, true}));
  EXPECT_EQ(span_of(p, kK), 20 * 16);
}

TEST(MakeProblem, Caches_RefuseWhatContradictsThem) {
  const auto refused = [](const Args& args, fa3_status code,
                          const std::vector<std::string>& parts) {
    expect_refusal(make_problem(args).status(), code, parts);
  };
  const auto with = [](Args args, TensorId id, const fa3_tensor& t) {
    args.tensor[id] = t;
    return args;
  };
  const fa3_tensor of_batch = tensor(FA3_I32, {2}), none{};
  refused(with(paged_args(), kSequsedKv, none), FA3_INVALID_ARGUMENT,
          {"page_table is given, but seqused_kv is absent"});
  refused(with(packed_args(), kSequsedKv, none), FA3_INVALID_ARGUMENT,
          {"kv_begin is given, but seqused_kv is absent"});
  refused(with(packed_args(), kKvBegin, none), FA3_INVALID_ARGUMENT, {"k.rank=3"});
  refused(with(paged_args(), kKvBatchIdx, of_batch), FA3_INVALID_ARGUMENT,
          {"kv_batch_idx beside page_table"});
  for (const TensorId id : {kKvBatchIdx, kKvBegin})
    refused(with(varlen_args(), id, tensor(FA3_I32, {3})), FA3_INVALID_ARGUMENT,
            {tensor_name(id), "beside cu_seqlens_kv"});
  refused(with(paged_args(), kPageTable, tensor(FA3_I32, {2, 5}, {7, 1})), FA3_INVALID_ARGUMENT,
          {"page_table.stride[0]=7, need 5"});
  refused(with(paged_args(), kPageTable, tensor(FA3_I32, {3, 5})), FA3_INVALID_ARGUMENT,
          {"page_table.shape[0]=3 disagrees with batch=2"});
  refused(with(paged_args(), kPageTable, tensor(FA3_I32, {5})), FA3_INVALID_ARGUMENT,
          {"page_table.rank=1, need rank 2"});
  refused(with(paged_args(), kPageTable, tensor(FA3_F32, {2, 5})), FA3_INVALID_ARGUMENT,
          {"page_table.dtype=f32, need i32"});
  refused(with(paged_args(), kPageTable, tensor(FA3_I32, {2, int64_t{1} << 40})),
          FA3_INVALID_ARGUMENT, {"max_pages · page_size=2147483648, need 0…2147483647"});
  refused(with(paged_args(), kK, tensor(FA3_F32, {9, 0, 2, 8})), FA3_INVALID_ARGUMENT,
          {"k.shape[1]=0 is the page_size"});
  refused(with(paged_args(), kK, tensor(FA3_F32, {27, 2, 8})), FA3_INVALID_ARGUMENT,
          {"k.rank=3 beside page_table"});
  refused(with(paged_args(), kV, tensor(FA3_F32, {9, 4, 2, 6})), FA3_INVALID_ARGUMENT,
          {"v.shape[1]=4 disagrees with page_size=3"});
  refused(with(paged_args(), kV, tensor(FA3_F32, {8, 3, 2, 6})), FA3_INVALID_ARGUMENT,
          {"v.shape[0]=8 disagrees with pages=9"});
  refused(with(slot_args(), kV, tensor(FA3_F32, {2, 7, 2, 6})), FA3_INVALID_ARGUMENT,
          {"v.shape[0]=2 disagrees with slots=9"});
  refused(with(slot_args(), kKvBatchIdx, none), FA3_INVALID_ARGUMENT, {"disagrees with batch=2"});
}

TEST(MakeProblem, Caches_RefuseEightBitsAndIds) {
  for (Args args : {paged_args(), slot_args(), packed_args()}) {
    Args half = args;
    for (const TensorId id : {kQ, kK, kV, kO}) half.tensor[id].dtype = FA3_F16;
    EXPECT_TRUE(make_problem(half).ok());
    half.precision = FA3_PRECISION_FP8;
    expect_refusal(make_problem(half).status(), FA3_UNSUPPORTED, {"a precision of 8 bits"});
    args.tensor[kSequenceIdsQ] = tensor(FA3_I32, {2, 5});
    args.tensor[kSequenceIdsKv] = tensor(FA3_I32, {2, 7});
    expect_refusal(make_problem(args).status(), FA3_UNSUPPORTED, {"sequence_ids"});
    for (const TensorId id : {kQ, kK, kV}) args.tensor[id].dtype = FA3_F8_E4M3;
    expect_refusal(make_problem(args).status(), FA3_UNSUPPORTED, {"q of 8 bits"});
  }
}

TEST(MakeProblem, Caches_OfNoPagesOrSlotsHaveNoKeys) {
  Args args = paged_args();
  args.tensor[kK].shape[0] = args.tensor[kV].shape[0] = 0;
  EXPECT_TRUE(has_no_keys(problem_of(args)));
  args = paged_args();
  args.tensor[kPageTable] = tensor(FA3_I32, {2, 0});
  EXPECT_TRUE(has_no_keys(problem_of(args)));
  EXPECT_FALSE(has_no_keys(problem_of(paged_args())));
}

TEST(PlanKernels, Caches_AreDeclinedByName) {
  for (const auto& [args, name] : {std::pair(paged_args(), "page_table"),
                                   {slot_args(), "kv_batch_idx"},
                                   {packed_args(), "kv_begin"}}) {
    Args half = args;
    for (const TensorId id : {kQ, kK, kV, kO}) half.tensor[id].dtype = FA3_F16;
    const auto plan = plan_kernels(problem_of(half), sm90::h200());
    expect_refusal(
        plan.status(), FA3_UNSUPPORTED,
        {std::string("forward: ") + name, "which no kernel takes; copy the", "or use backend cpu"});
  }
}

}  // namespace
}  // namespace fa3
