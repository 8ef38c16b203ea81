// SPDX-License-Identifier: BSD-3-Clause
// problem_cache_test.cpp — page_table, kv_batch_idx and kv_begin: what they make of a problem, what
// is refused by name, and how Hopper finds keys.
#include "args_kit.h"
#include "core/span.h"
#include "plan/plan.h"
#include "plan/sm90/roofline.h"
#include "plan/sm90/tensor_limits.h"

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

TEST(MakeProblem, Caches_RefusePrecisionsAndIds) {
  for (Args args : {paged_args(), slot_args(), packed_args()}) {
    Args half = args;
    for (const TensorId id : {kQ, kK, kV, kO}) half.tensor[id].dtype = FA3_F16;
    EXPECT_TRUE(make_problem(half).ok());
    half.precision = FA3_PRECISION_FP8;
    expect_refusal(make_problem(half).status(), FA3_UNSUPPORTED, {"a precision of 8 bits"});
    args.tensor[kSequenceIdsQ] = tensor(FA3_I32, {2, 5});
    args.tensor[kSequenceIdsKv] = tensor(FA3_I32, {2, 7});
    expect_refusal(make_problem(args).status(), FA3_UNSUPPORTED, {"sequence_ids"});
  }
}

TEST(MakeProblem, Caches_OfEightBits) {
  const auto of_codes = [](Args args, fa3_dtype q) {
    for (const TensorId id : {kQ, kO}) args.tensor[id].dtype = q;
    if (q == FA3_F8_E4M3) args.tensor[kO].dtype = FA3_BF16;
    for (const TensorId id : {kK, kV}) args.tensor[id].dtype = FA3_F8_E4M3;
    return args;
  };
  for (const Args& args : {paged_args(), slot_args(), packed_args()}) {
    for (const fa3_dtype q : {FA3_F32, FA3_F16, FA3_BF16, FA3_F8_E4M3}) {
      Args codes = of_codes(args, q);
      EXPECT_TRUE(make_problem(codes).ok()) << make_problem(codes).status().message;
      codes.tensor[kKScale] = tensor(FA3_F32, {2, 2});
      codes.tensor[kVScale] = tensor(FA3_F32, {1});
      EXPECT_TRUE(make_problem(codes).ok()) << make_problem(codes).status().message;
      codes.tensor[kKScale] = tensor(FA3_F32, {2, 3});
      expect_refusal(make_problem(codes).status(), FA3_INVALID_ARGUMENT,
                     {"k_scale.shape[1]=3 disagrees with heads_kv=2"});
      codes.tensor[kKScale] = tensor(FA3_F32, {2, 2, 7, 1});
      codes.scale_block[kK] = {1, 0};
      expect_refusal(make_problem(codes).status(), FA3_UNSUPPORTED,
                     {"k_block=(1, 0) beside a cache, need (0, 0)"});
      codes = of_codes(args, q);
      codes.tensor[kKOffset] = tensor(FA3_F32, {2, 2, 8});
      expect_refusal(make_problem(codes).status(), FA3_UNSUPPORTED, {"k_offset beside"});
    }
    Args integers = args;
    for (const TensorId id : {kQ, kK}) integers.tensor[id].dtype = FA3_I8;
    integers.tensor[kV].dtype = FA3_F8_E4M3, integers.tensor[kO].dtype = FA3_BF16;
    expect_refusal(make_problem(integers).status(), FA3_UNSUPPORTED, {"k of i8"});
    Args mixed = of_codes(args, FA3_BF16);
    mixed.tensor[kV].dtype = FA3_BF16;
    expect_refusal(make_problem(mixed).status(), FA3_INVALID_ARGUMENT,
                   {"v.dtype=bf16, need f8_e4m3 as k"});
  }
  Args pages = of_codes(paged_args(), FA3_BF16);
  pages.tensor[kKScale] = pages.tensor[kVScale] = tensor(FA3_F32, {9, 2});
  expect_refusal(make_problem(pages).status(), FA3_INVALID_ARGUMENT,
                 {"k_scale.shape[0]=9 disagrees with batch=2"});
  pages.scale_block[kK] = pages.scale_block[kV] = {3, 0};
  EXPECT_TRUE(problem_of(pages).scale_block[kK].by_page);
  pages.tensor[kKScale] = tensor(FA3_F32, {8, 2});
  expect_refusal(make_problem(pages).status(), FA3_INVALID_ARGUMENT,
                 {"k_scale.shape[0]=8 disagrees with pages=9"});
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

// ---- On Hopper ---------------------------------------------------------------------------------

// 16 bits: `entries` pages of so many rows, 2 heads of 64.
Problem hopper_pages(int64_t entries, int64_t page_size) {
  Problem p;
  p.batch = 2, p.heads_q = 8, p.heads_kv = 2;
  p.head_dim_qk = p.head_dim_v = 64;
  p.q.rows = p.q.max_seqlen = 1;
  p.kv.rows = p.kv.max_seqlen = 5 * page_size;
  p.kv.seqused = true;
  p.cache = {entries, page_size, 5, false, false};
  for (const TensorId id : {kQ, kO}) p.layout[id] = {FA3_BF16, 512, 512, 64};
  for (const TensorId id : {kK, kV}) p.layout[id] = {FA3_BF16, 128 * page_size, 128, 64};
  p.softmax_scale = 1;
  return p;
}

TEST(CacheSteps, AnyStrides) {
  Problem p = hopper_pages(9, 16);
  const auto expect_steps = [&](int64_t row_stride, int64_t y, int64_t entry, int64_t row) {
    const sm90::CacheSteps steps = sm90::cache_steps(p, kK);
    EXPECT_EQ(steps.row_stride, row_stride);
    EXPECT_EQ(steps.y, y);
    EXPECT_EQ(steps.entry, entry);
    EXPECT_EQ(steps.row, row);
  };
  expect_steps(128, 128, 16, 1);
  p.layout[kK] = {FA3_BF16, 16 * 2 * 128, 128, 16 * 128};  // heads first, half of each row
  expect_steps(128, 128, 32, 1);
  p.layout[kK] = {FA3_BF16, 2056, 128, 64};  // padding between pages
  expect_steps(128, 8, 257, 16);
  p.layout[kK] = {FA3_BF16, 0, 128, 64};  // one page, many times
  expect_steps(128, 128, 0, 1);
  p = hopper_pages(9, 1);
  p.layout[kK].row = 7;  // never used
  expect_steps(128, 128, 1, 1);
  p.layout[kK].batch = 0;
  expect_steps(8, 8, 0, 1);
}

TEST(CacheSteps, RunsOfTilesAndPages) {
  EXPECT_EQ(sm90::cache_run(hopper_pages(9, 48), 64), 16);
  EXPECT_EQ(sm90::cache_run(hopper_pages(9, 3), 64), 1);
  EXPECT_EQ(sm90::cache_run(hopper_pages(9, 256), 64), 64);
  EXPECT_EQ(sm90::kv_source(hopper_pages(9, 256), 64, 4), KvSource::kTiles);
  EXPECT_EQ(sm90::kv_source(hopper_pages(9, 4), 64, 4), KvSource::kRuns);
  EXPECT_EQ(sm90::kv_source(hopper_pages(9, 2), 64, 4), KvSource::kRows);
  Problem p = hopper_pages(9, 64);
  p.cache.begins = true;  // within pages
  EXPECT_EQ(sm90::cache_run(p, 64), 1);
  p.cache.page_size = 0;
  EXPECT_EQ(sm90::cache_run(p, 64), 64);
  p.cache = {};
  EXPECT_EQ(sm90::kv_source(p, 64, 4), KvSource::kTensor);
}

TEST(PlanKernels, CachesThatHopperCannotAddress) {
  const auto expect_declined = [](const Problem& p, const std::vector<std::string>& parts) {
    expect_refusal(plan_kernels(p, sm90::h200()).status(), FA3_UNSUPPORTED, parts);
  };
  EXPECT_TRUE(plan_kernels(hopper_pages(9, 16), sm90::h200()).ok());
  Problem p = hopper_pages(9, 16);
  p.layout[kV].row = 132;
  expect_declined(p, {"forward: v: row stride 132", "need a multiple of 8", "copy the tensor"});
  p = hopper_pages(9, 16);
  p.layout[kK].row = int64_t{1} << 31;
  expect_declined(p, {"forward: k: row stride", "need less than"});
  p = hopper_pages(int64_t{1} << 28, 16);
  p.layout[kK].batch += 8;
  expect_declined(p, {"forward: k: 268435456 pages or slots of 16 rows", "split the cache"});
  p = hopper_pages(9, 16);
  p.kv.rows = p.kv.max_seqlen = int64_t{1} << 30;  // of 2^26 pages
  expect_declined(p, {"rows of a sequence", "pass fewer columns of page_table"});
}

}  // namespace
}  // namespace fa3
