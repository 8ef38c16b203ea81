// SPDX-License-Identifier: BSD-3-Clause
// problem_mask_test.cpp — attn_mask, its gradient and the alignment: what is legal, what is refused
// by name, and that plans for GPUs decline.
#include <functional>

#include "args_kit.h"
#include "core/span.h"
#include "plan/plan.h"
#include "plan/sm90/roofline.h"

namespace fa3 {
namespace {

using test::dense_args;
using test::problem_of;
using test::tensor;
using test::varlen_args;

// Of batch 2, seqlen_q 5, seqlen_kv 7, 4 query heads.
Args with_mask(Args args, fa3_dtype dtype, std::initializer_list<int64_t> shape,
               std::initializer_list<int64_t> stride = {}) {
  args.tensor[kAttnMask] = tensor(dtype, shape, stride);
  return args;
}

TEST(MakeProblem, Mask_StridesOfEachDimension) {
  EXPECT_FALSE(problem_of(dense_args()).has_mask());
  Problem p = problem_of(with_mask(dense_args(), FA3_BOOL, {2, 4, 5, 7}));
  EXPECT_TRUE(p.has_mask());
  EXPECT_EQ(p.layout[kAttnMask], (Layout{FA3_BOOL, 140, 7, 35, 1}));
  EXPECT_EQ(span_of(p, kAttnMask), 280);
  p = problem_of(with_mask(dense_args(), FA3_F32, {1, 4, 1, 7}));
  EXPECT_EQ(p.layout[kAttnMask], (Layout{FA3_F32, 0, 0, 7, 1}));
  EXPECT_EQ(span_of(p, kAttnMask), 28);
  p = problem_of(with_mask(dense_args(), FA3_F32, {2, 1, 5, 1}));
  EXPECT_EQ(p.layout[kAttnMask], (Layout{FA3_F32, 5, 1, 0, 0}));
  EXPECT_EQ(span_of(p, kAttnMask), 10);
  p = problem_of(with_mask(dense_args(), FA3_F32, {1, 1, 1, 1}));
  EXPECT_EQ(p.layout[kAttnMask], (Layout{FA3_F32, 0, 0, 0, 0}));
  p = problem_of(with_mask(dense_args(), FA3_BOOL, {2, 4, 5, 7}, {0, 0, 9, 1}));  // expanded
  EXPECT_EQ(p.layout[kAttnMask], (Layout{FA3_BOOL, 0, 9, 0, 1}));
  p = problem_of(with_mask(dense_args(), FA3_BOOL, {2, 4, 5, 7}, {1, 0, 0, 0}));  // in keys, too
  EXPECT_EQ(p.layout[kAttnMask], (Layout{FA3_BOOL, 1, 0, 0, 0}));
  EXPECT_EQ(span_of(p, kAttnMask), 2);
}

TEST(MakeProblem, MaskGradient_HasExtentsOfItsOwn) {
  Args args = with_mask(dense_args(FA3_OP_BACKWARD), FA3_F32, {1, 1, 5, 7});
  args.tensor[kDattnMask] = tensor(FA3_F32, {1, 4, 5, 1});
  const Problem p = problem_of(args);
  EXPECT_EQ(p.mask_grad, (MaskExtents{1, 4, 5, 1}));
  EXPECT_EQ(span_of(p, kDattnMask), 20);
}

TEST(MakeProblem, Mask_OfVarlenKeysHasTheLongest) {
  Args args = varlen_args();  // total_q 10, total_kv 14, batch 3
  args.tensor[kCuSeqlensQ] = {};
  args.tensor[kQ] = tensor(FA3_F32, {3, 5, 4, 8});
  args.tensor[kO] = tensor(FA3_F32, {3, 5, 4, 6});
  args.tensor[kLse] = {};
  problem_of(with_mask(args, FA3_BOOL, {3, 1, 5, 14}));
  args.max_seqlen_kv = 9;
  problem_of(with_mask(args, FA3_BOOL, {3, 1, 5, 9}));
  test::expect_refusal(make_problem(with_mask(args, FA3_BOOL, {3, 1, 5, 14})).status(),
                       FA3_INVALID_ARGUMENT, {"attn_mask.shape[3]=14", "max_seqlen_kv=9"});
}

TEST(MakeProblem, TopLeft_OnlyWhereItMatters) {
  Args args = dense_args();
  args.mask_alignment = FA3_ALIGN_TOP_LEFT;
  EXPECT_FALSE(problem_of(args).top_left) << "of a full mask";
  args.mask = FA3_MASK_CAUSAL;
  EXPECT_TRUE(problem_of(args).top_left);
  args.mask_alignment = FA3_ALIGN_BOTTOM_RIGHT;
  EXPECT_FALSE(problem_of(args).top_left);
}

// One change to legal arguments, and what the refusal names.
const Args kMask = with_mask(dense_args(), FA3_BOOL, {2, 4, 5, 7}),
           kBackMask = with_mask(dense_args(FA3_OP_BACKWARD), FA3_F32, {1, 1, 5, 7});
const struct {
  const char* name;
  Args args;
  std::function<void(Args&)> change;
  std::vector<std::string> parts;
} kRefusals[] = {
    {"type",
     kMask,
     [](Args& a) { a.tensor[kAttnMask].dtype = FA3_I32; },
     {"forward", "attn_mask.dtype=i32", "need bool, f32"}},
    {"type_of_others",
     kMask,
     [](Args& a) { a.tensor[kAttnMask].dtype = FA3_F16; },
     {"attn_mask.dtype=f16", "need bool, f32"}},
    {"bool_of_others",
     kMask,
     [](Args& a) { a.tensor[kQ].dtype = FA3_BOOL; },
     {"q.dtype=bool", "need f32"}},
    {"rank",
     kMask,
     [](Args& a) {
       a.tensor[kAttnMask] = tensor(FA3_BOOL, {5, 7});
     },
     {"attn_mask.rank=2", "(batch, heads_q, seqlen_q, seqlen_kv)", "extents of 1 in front"}},
    {"extent",
     kMask,
     [](Args& a) {
       a.tensor[kAttnMask] = tensor(FA3_BOOL, {2, 2, 5, 7});
     },
     {"attn_mask.shape[1]=2", "heads_q=4", "(2, 4, 5, 7), or 1 in any"}},
    {"column_stride",
     kMask,
     [](Args& a) {
       a.tensor[kAttnMask] = tensor(FA3_BOOL, {1, 1, 5, 7}, {0, 0, 14, 2});
     },
     {"attn_mask.stride[3]=2", "not contiguous"}},
    {"no_strides",
     kMask,
     [](Args& a) {
       a.tensor[kAttnMask] = tensor(FA3_BOOL, {2, 4, 5, 7}, {0, 0, 0, 0});
     },
     {"attn_mask", "stride (0, 0, 0, 0)"}},
    {"varlen_queries",
     varlen_args(),
     [](Args& a) {
       a.tensor[kAttnMask] = tensor(FA3_BOOL, {1, 1, 1, 14});
     },
     {"attn_mask beside cu_seqlens_q", "dense queries", "sequence_ids"}},
    {"alignment",
     kMask,
     [](Args& a) { a.mask_alignment = 2; },
     {"mask_alignment=2", "FA3_ALIGN_TOP_LEFT (1)"}},
    {"gradient_alone",
     dense_args(FA3_OP_BACKWARD),
     [](Args& a) {
       a.tensor[kDattnMask] = tensor(FA3_F32, {1, 1, 5, 7});
     },
     {"backward", "dattn_mask is given", "attn_mask is absent"}},
    {"gradient_of_bool",
     kBackMask,
     [](Args& a) {
       a.tensor[kAttnMask].dtype = FA3_BOOL;
       a.tensor[kDattnMask] = tensor(FA3_F32, {1, 1, 5, 7});
     },
     {"backward", "dattn_mask beside attn_mask of bool"}},
    {"gradient_type",
     kBackMask,
     [](Args& a) {
       a.tensor[kDattnMask] = tensor(FA3_F16, {1, 1, 5, 7});
     },
     {"dattn_mask.dtype=f16", "f32 or the type of attn_mask"}},
    {"gradient_extent",
     kBackMask,
     [](Args& a) {
       a.tensor[kDattnMask] = tensor(FA3_F32, {1, 3, 5, 7});
     },
     {"dattn_mask.shape[1]=3", "heads_q=4"}},
    {"gradient_expanded",
     kBackMask,
     [](Args& a) {
       a.tensor[kDattnMask] = tensor(FA3_F32, {2, 1, 5, 7}, {0, 35, 7, 1});
     },
     {"dattn_mask.stride[0]=0", "onto each other"}},
};

TEST(MakeProblem, Mask_RefusedByNameAndShape) {
  problem_of(kMask);
  problem_of(kBackMask);
  for (const auto& refusal : kRefusals) {
    SCOPED_TRACE(refusal.name);
    Args args = refusal.args;
    refusal.change(args);
    test::expect_refusal(make_problem(args).status(), FA3_INVALID_ARGUMENT, refusal.parts);
  }
}

// No kernel reads it beside 8 bits, and none counts from the top left.
TEST(PlanKernels, Mask_DeclinedByName) {
  const auto expect_declined = [](const Args& args, const std::vector<std::string>& parts) {
    test::expect_refusal(plan_kernels(problem_of(args), sm90::h200()).status(), FA3_UNSUPPORTED,
                         parts);
  };
  Args eight_bits = kMask;
  eight_bits.tensor[kQ] = tensor(FA3_F8_E4M3, {2, 5, 4, 16});
  eight_bits.tensor[kK] = eight_bits.tensor[kV] = tensor(FA3_F8_E4M3, {2, 7, 2, 16});
  eight_bits.tensor[kO] = tensor(FA3_BF16, {2, 5, 4, 16});
  expect_declined(eight_bits, {"forward: attn_mask with q of f8_e4m3", "sm90", "use backend cpu"});
  Args args = dense_args();
  args.mask = FA3_MASK_CAUSAL;
  args.mask_alignment = FA3_ALIGN_TOP_LEFT;
  expect_declined(args, {"forward: mask_alignment", "top left", "sm90"});
}

}  // namespace
}  // namespace fa3
