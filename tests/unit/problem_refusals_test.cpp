// SPDX-License-Identifier: BSD-3-Clause
// problem_refusals_test.cpp — each illegal argument is refused by name, value and limit.
#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>

#include "api/problem.h"
#include "args_kit.h"

namespace fa3 {
namespace {

using test::dense_args;
using test::tensor;
using test::varlen_args;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// One change to legal arguments.
struct Refusal {
  const char* name;
  Args args;
  std::function<void(Args&)> change;
  fa3_status code;
  std::vector<std::string> parts;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class MakeProblemRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(MakeProblemRefuses, NamesArgumentValueAndLimit) {
  Args args = GetParam().args;
  GetParam().change(args);
  test::expect_refusal(make_problem(args).status(), GetParam().code, GetParam().parts);
}

constexpr fa3_status kInvalid = FA3_INVALID_ARGUMENT;
constexpr fa3_status kUnsupported = FA3_UNSUPPORTED;
const Args kDense = dense_args(), kVarlen = varlen_args(), kBack = dense_args(FA3_OP_BACKWARD),
           kHalf = dense_args(FA3_OP_FORWARD, FA3_F16);

const Refusal kTensorRefusals[] = {
    {"q_absent",
     kDense,
     [](Args& a) { a.tensor[kQ] = {}; },
     kInvalid,
     {"forward", "q is absent", "required"}},
    {"o_absent", kDense, [](Args& a) { a.tensor[kO] = {}; }, kInvalid, {"o is absent"}},
    {"lse_absent_in_backward",
     kBack,
     [](Args& a) { a.tensor[kLse] = {}; },
     kInvalid,
     {"backward", "lse is absent"}},
    {"dout_absent", kBack, [](Args& a) { a.tensor[kDout] = {}; }, kInvalid, {"dout is absent"}},
    {"rank_negative",
     kDense,
     [](Args& a) { a.tensor[kK].rank = -1; },
     kInvalid,
     {"k.rank=-1", "0…5"}},
    {"rank_too_large",
     kDense,
     [](Args& a) { a.tensor[kK].rank = 6; },
     kInvalid,
     {"k.rank=6", "0…5"}},
    {"dtype_unknown", kDense, [](Args& a) { a.tensor[kV].dtype = 17; }, kInvalid, {"v.dtype=17"}},
    {"dtype_none", kDense, [](Args& a) { a.tensor[kV].dtype = 0; }, kInvalid, {"v.dtype=0"}},
    {"dtype_f8",
     kDense,
     [](Args& a) { a.tensor[kQ].dtype = FA3_F8_E5M2; },
     kUnsupported,
     {"q.dtype=f8_e5m2"}},
    {"dtype_i32",
     kDense,
     [](Args& a) { a.tensor[kQ].dtype = FA3_I32; },
     kInvalid,
     {"q.dtype=i32", "f32, f16, bf16, f8_e4m3, i8 or f64"}},
    {"dtype_mixed",
     kDense,
     [](Args& a) { a.tensor[kK].dtype = FA3_BF16; },
     kUnsupported,
     {"k.dtype=bf16", "q.dtype=f32", "mixed"}},
    {"dtype_k_i32",
     kDense,
     [](Args& a) { a.tensor[kK].dtype = FA3_I32; },
     kInvalid,
     {"k.dtype=i32", "need f32"}},
    {"dtype_o",
     kHalf,
     [](Args& a) { a.tensor[kO].dtype = FA3_BF16; },
     kInvalid,
     {"o.dtype=bf16", "f16 as q, or f32"}},
    {"dtype_o_of_f32",
     kDense,
     [](Args& a) { a.tensor[kO].dtype = FA3_BF16; },
     kInvalid,
     {"o.dtype=bf16", "need f32 as q;"}},
    {"dtype_lse",
     kHalf,
     [](Args& a) { a.tensor[kLse].dtype = FA3_F16; },
     kInvalid,
     {"lse.dtype=f16", "f32"}},
    {"dtype_dq", kBack, [](Args& a) { a.tensor[kDq].dtype = FA3_F16; }, kInvalid, {"dq.dtype=f16"}},
    {"dtype_cu_seqlens",
     kVarlen,
     [](Args& a) { a.tensor[kCuSeqlensQ].dtype = FA3_F32; },
     kInvalid,
     {"cu_seqlens_q.dtype=f32", "i32"}},
    {"dtype_seqused",
     kDense,
     [](Args& a) { a.tensor[kSequsedQ] = tensor(FA3_F32, {2}); },
     kInvalid,
     {"seqused_q.dtype=f32", "i32"}},
    {"extent_negative",
     kDense,
     [](Args& a) { a.tensor[kQ].shape[1] = -5; },
     kInvalid,
     {"q.shape[1]=-5"}},
    {"strides_not_set",
     kDense,
     [](Args& a) {
       a.tensor[kQ] = tensor(FA3_F32, {2, 5, 4, 8}, {0, 0, 0, 0});
     },
     kInvalid,
     {"forward", "q with shape (2, 5, 4, 8) has stride (0, 0, 0, 0)", "fa3_dense"}},
    {"gradient_expanded_from_one_number",
     kBack,
     [](Args& a) {
       a.tensor[kDout] = tensor(FA3_F32, {2, 5, 4, 6}, {0, 0, 0, 0});
     },
     kInvalid,
     {"backward", "dout with shape (2, 5, 4, 6)", "expanded"}},
    {"strides_of_an_output_not_set",
     kDense,
     [](Args& a) {
       a.tensor[kLse] = tensor(FA3_F32, {2, 4, 5}, {0, 0, 0});
     },
     kInvalid,
     {"lse with shape (2, 4, 5)", "fa3_dense"}},
    {"stride_of_cu_seqlens_not_set",
     kVarlen,
     [](Args& a) { a.tensor[kCuSeqlensKv].stride[0] = 0; },
     kInvalid,
     {"cu_seqlens_kv with shape (4) has stride (0)", "fa3_dense"}},
    {"stride_negative",
     kDense,
     [](Args& a) {
       a.tensor[kQ] = tensor(FA3_F32, {2, 5, 4, 8}, {160, -32, 8, 1});
     },
     kInvalid,
     {"q.stride[1]=-32"}},
    {"last_dimension_strided",
     kDense,
     [](Args& a) {
       a.tensor[kK] = tensor(FA3_F32, {2, 7, 2, 8}, {224, 32, 16, 2});
     },
     kInvalid,
     {"k.stride[3]=2 with extent 8", "contiguous", "need stride 1"}},
    {"last_dimension_broadcast",
     kDense,
     [](Args& a) {
       a.tensor[kK] = tensor(FA3_F32, {2, 7, 2, 8}, {7, 1, 0, 0});
     },
     kInvalid,
     {"k.stride[3]=0", "contiguous"}},
    {"output_broadcast",
     kDense,
     [](Args& a) {
       a.tensor[kO] = tensor(FA3_F32, {2, 5, 4, 6}, {120, 24, 0, 1});
     },
     kInvalid,
     {"o.stride[2]=0", "extent 4"}},
    {"output_overlaps_itself",
     kDense,
     [](Args& a) {
       a.tensor[kO] = tensor(FA3_F32, {2, 5, 4, 6}, {120, 24, 5, 1});
     },
     kInvalid,
     {"o with shape (2, 5, 4, 6) and stride (120, 24, 5, 1)", "share memory"}},
    {"cu_seqlens_strided",
     kVarlen,
     [](Args& a) { a.tensor[kCuSeqlensQ].stride[0] = 2; },
     kInvalid,
     {"cu_seqlens_q.stride[0]=2", "contiguous"}},
    {"elements_overflow",
     kDense,
     [](Args& a) {
       a.tensor[kQ] = tensor(FA3_F32, {1 << 30, 1 << 30, 4, 8});
     },
     kInvalid,
     {"q with shape (1073741824, 1073741824, 4, 8)", "2^63"}},
    {"bytes_overflow",
     kDense,
     [](Args& a) {
       a.tensor[kQ] = tensor(FA3_F32, {1 << 30, 1 << 30, 1, 2});
     },
     kInvalid,
     {"q with shape", "2^63"}},
    {"span_overflow",
     kDense,
     [](Args& a) {
       a.tensor[kQ] = tensor(FA3_F32, {2, 5, 4, 8}, {int64_t{1} << 61, 32, 8, 1});
     },
     kInvalid,
     {"q with shape", "2305843009213693952", "2^63"}},
    {"empty_extents_overflow",
     kDense,
     [](Args& a) {
       a.tensor[kQ] = tensor(FA3_F32, {0, int64_t{1} << 40, int64_t{1} << 40, 8});
     },
     kInvalid,
     {"q with shape", "2^63"}},
};
INSTANTIATE_TEST_SUITE_P(Tensors, MakeProblemRefuses, testing::ValuesIn(kTensorRefusals),
                         [](const auto& info) { return info.param.name; });

const Refusal kShapeRefusals[] = {
    {"rank_of_dense_q",
     kDense,
     [](Args& a) {
       a.tensor[kQ] = tensor(FA3_F32, {10, 4, 8});
     },
     kInvalid,
     {"q.rank=3", "need rank 4", "cu_seqlens_q"}},
    {"rank_of_varlen_k",
     kVarlen,
     [](Args& a) {
       a.tensor[kK] = tensor(FA3_F32, {2, 7, 2, 8});
     },
     kInvalid,
     {"k.rank=4", "need rank 3", "cu_seqlens_kv"}},
    {"rank_of_lse",
     kDense,
     [](Args& a) {
       a.tensor[kLse] = tensor(FA3_F32, {4, 10});
     },
     kInvalid,
     {"lse.rank=2", "(batch, heads_q, seqlen_q)"}},
    {"rank_of_cu_seqlens",
     kVarlen,
     [](Args& a) {
       a.tensor[kCuSeqlensQ] = tensor(FA3_I32, {2, 2});
     },
     kInvalid,
     {"cu_seqlens_q.rank=2", "need rank 1"}},
    {"batch_of_k",
     kDense,
     [](Args& a) { a.tensor[kK].shape[0] = 3; },
     kInvalid,
     {"k.shape[0]=3", "batch=2"}},
    {"seqlen_of_v",
     kDense,
     [](Args& a) { a.tensor[kV].shape[1] = 9; },
     kInvalid,
     {"v.shape[1]=9", "seqlen_kv=7"}},
    {"heads_of_v",
     kDense,
     [](Args& a) { a.tensor[kV].shape[2] = 1; },
     kInvalid,
     {"v.shape[2]=1", "heads_kv=2"}},
    {"head_dim_of_k",
     kDense,
     [](Args& a) { a.tensor[kK].shape[3] = 16; },
     kInvalid,
     {"k.shape[3]=16", "head_dim_qk=8"}},
    {"head_dim_of_o",
     kDense,
     [](Args& a) { test::resize(a.tensor[kO], 3, 8); },
     kInvalid,
     {"o.shape[3]=8", "head_dim_v=6"}},
    {"lse_transposed",
     kDense,
     [](Args& a) {
       a.tensor[kLse] = tensor(FA3_F32, {2, 5, 4});
     },
     kInvalid,
     {"lse.shape[1]=5", "heads_q=4"}},
    {"dq_shape",
     kBack,
     [](Args& a) { test::resize(a.tensor[kDq], 1, 6); },
     kInvalid,
     {"dq.shape[1]=6", "seqlen_q=5"}},
    {"dout_shape",
     kBack,
     [](Args& a) { a.tensor[kDout].shape[3] = 8; },
     kInvalid,
     {"dout.shape[3]=8"}},
    {"dlse_shape",
     kBack,
     [](Args& a) { a.tensor[kDlse].shape[0] = 1; },
     kInvalid,
     {"dlse.shape[0]=1", "batch=2"}},
    {"cu_seqlens_kv_batch",
     kVarlen,
     [](Args& a) { a.tensor[kCuSeqlensKv].shape[0] = 5; },
     kInvalid,
     {"cu_seqlens_kv.shape[0]=5", "batch + 1=4"}},
    {"cu_seqlens_q_empty",
     kVarlen,
     [](Args& a) { a.tensor[kCuSeqlensQ].shape[0] = 0; },
     kInvalid,
     {"cu_seqlens_q.shape[0]=0"}},
    {"seqused_batch",
     kDense,
     [](Args& a) { a.tensor[kSequsedKv] = tensor(FA3_I32, {3}); },
     kInvalid,
     {"seqused_kv.shape[0]=3", "batch=2"}},
    {"heads_not_a_multiple",
     kDense,
     [](Args& a) { a.tensor[kK].shape[2] = a.tensor[kV].shape[2] = 3; },
     kInvalid,
     {"heads_q=4", "multiple of heads_kv=3", "correct the shape"}},
    {"heads_before_seqlen",
     kDense,
     [](Args& a) {
       for (const TensorId id : {kQ, kK, kV, kO}) {
         std::swap(a.tensor[id].shape[1], a.tensor[id].shape[2]);
         test::resize(a.tensor[id], 3, a.tensor[id].shape[3]);
       }
     },
     kInvalid,
     {"is not a multiple of heads_kv", "(batch, heads, seqlen, head_dim)", "exchange dimensions"}},
    {"no_kv_heads",
     kDense,
     [](Args& a) { a.tensor[kK].shape[2] = a.tensor[kV].shape[2] = 0; },
     kInvalid,
     {"heads_q=4", "heads_kv=0"}},
    {"head_dim_zero",
     kDense,
     [](Args& a) { a.tensor[kQ].shape[3] = a.tensor[kK].shape[3] = 0; },
     kInvalid,
     {"head_dim_qk=0", "1…512"}},
    {"head_dim_v_513",
     kDense,
     [](Args& a) {
       for (TensorId id : {kV, kO}) test::resize(a.tensor[id], 3, 513);
     },
     kInvalid,
     {"head_dim_v=513", "1…512"}},
    {"seqlen_beyond_32_bits",
     kDense,
     [](Args& a) {
       for (TensorId id : {kQ, kO}) test::resize(a.tensor[id], 1, int64_t{1} << 31);
       test::resize(a.tensor[kLse], 2, int64_t{1} << 31);
     },
     kInvalid,
     {"seqlen_q=2147483648", "2147483647"}},
    {"padded_rows_beyond_2_49",
     kVarlen,
     [](Args& a) {
       for (TensorId id : {kQ, kO}) test::resize(a.tensor[id], 0, 1 << 30);
       test::resize(a.tensor[kLse], 1, 1 << 30);
       a.tensor[kCuSeqlensQ].shape[0] = a.tensor[kCuSeqlensKv].shape[0] = 1 << 30;
     },
     kInvalid,
     {"batch=1073741823", "max_seqlen_q=1073741824", "2^49"}},
    {"rows_beyond_2_49",  // of the tensors, though few are in sequences
     kVarlen,
     [](Args& a) {
       for (TensorId id : {kK, kV}) {
         test::resize(a.tensor[id], 0, 1 << 30);
         test::resize(a.tensor[id], 1, 1 << 20);
       }
       for (TensorId id : {kQ, kO}) test::resize(a.tensor[id], 1, 1 << 20);
       test::resize(a.tensor[kLse], 0, 1 << 20);
       a.max_seqlen_kv = 1;
     },
     kInvalid,
     {"max_seqlen_kv=1 rows", "1073741824 rows of the tensors", "2^49"}},
};
INSTANTIATE_TEST_SUITE_P(Shapes, MakeProblemRefuses, testing::ValuesIn(kShapeRefusals),
                         [](const auto& info) { return info.param.name; });

const Refusal kScalarRefusals[] = {
    {"max_seqlen_q", kVarlen, [](Args& a) { a.max_seqlen_q = -1; }, kInvalid, {"max_seqlen_q=-1"}},
    {"max_seqlen_kv_of_dense",
     kDense,
     [](Args& a) { a.max_seqlen_kv = -7; },
     kInvalid,
     {"max_seqlen_kv=-7"}},
    {"mask", kDense, [](Args& a) { a.mask = 3; }, kInvalid, {"mask=3", "FA3_MASK_WINDOW (2)"}},
    {"left_with_full",
     kDense,
     [](Args& a) { a.options.left = 5; },
     kInvalid,
     {"left=5", "FA3_MASK_FULL"}},
    {"right_with_causal",
     kDense,
     [](Args& a) { a.mask = FA3_MASK_CAUSAL, a.options.right = -1; },
     kInvalid,
     {"right=-1", "FA3_MASK_CAUSAL"}},
    {"left_too_low",
     kDense,
     [](Args& a) { a.mask = FA3_MASK_WINDOW, a.options.left = -2; },
     kInvalid,
     {"left=-2", "-1"}},
    {"right_too_low",
     kDense,
     [](Args& a) { a.mask = FA3_MASK_WINDOW, a.options.right = INT64_MIN; },
     kInvalid,
     {"right=-9223372036854775808"}},
    {"scale_nan",
     kDense,
     [](Args& a) { a.options.softmax_scale = kNan; },
     kInvalid,
     {"softmax_scale=nan", "finite"}},
    {"scale_inf",
     kDense,
     [](Args& a) { a.options.softmax_scale = -kInf; },
     kInvalid,
     {"softmax_scale=-inf"}},
    {"scale_over_softcap",
     kDense,
     [](Args& a) { a.options.softmax_scale = 1e30, a.options.softcap = 1e-30; },
     kInvalid,
     {"softmax_scale=1e+30", "softcap=1e-30"}},
    {"scale_beyond_f32",
     kDense,
     [](Args& a) { a.options.softmax_scale = 1e300; },
     kInvalid,
     {"softmax_scale=1e+300"}},
    {"softcap_negative", kDense, [](Args& a) { a.options.softcap = -1; }, kInvalid, {"softcap=-1"}},
    {"softcap_nan", kDense, [](Args& a) { a.options.softcap = kNan; }, kInvalid, {"softcap=nan"}},
    {"softcap_inf", kDense, [](Args& a) { a.options.softcap = kInf; }, kInvalid, {"softcap=inf"}},
    {"softcap_below_f32",
     kDense,
     [](Args& a) { a.options.softcap = 1e-300; },
     kInvalid,
     {"softcap=1e-300"}},
    {"deterministic",
     kDense,
     [](Args& a) { a.deterministic = 2; },
     kInvalid,
     {"deterministic=2", "need 0 or 1"}},
    {"num_splits_negative",
     kDense,
     [](Args& a) { a.options.num_splits = -1; },
     kInvalid,
     {"forward: num_splits=-1", "need 0 or more"}},
    {"sm_margin_negative",
     kDense,
     [](Args& a) { a.options.sm_margin = -8; },
     kInvalid,
     {"forward: sm_margin=-8", "need 0 or more"}},
};
INSTANTIATE_TEST_SUITE_P(Scalars, MakeProblemRefuses, testing::ValuesIn(kScalarRefusals),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fa3
