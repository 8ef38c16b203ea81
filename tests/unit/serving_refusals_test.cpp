// SPDX-License-Identifier: BSD-3-Clause
// serving_refusals_test.cpp — illegal chunks, trees and max_logit are refused by name, value and
// limit.
#include <functional>

#include "api/problem.h"
#include "args_kit.h"

namespace fa3 {
namespace {

using test::dense_args;
using test::tensor;
using test::varlen_args;

struct Refusal {
  const char* name;
  Args args;
  std::function<void(Args&)> change;
  std::vector<std::string> parts;
};
void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class MakeProblemRefusesServing : public testing::TestWithParam<Refusal> {};

TEST_P(MakeProblemRefusesServing, NamesArgumentValueAndLimit) {
  Args args = GetParam().args;
  ASSERT_TRUE(make_problem(args).ok());
  GetParam().change(args);
  test::expect_refusal(make_problem(args).status(), FA3_INVALID_ARGUMENT, GetParam().parts);
}

const Args kDense = dense_args(), kVarlen = varlen_args();

const Refusal kRefusals[] = {
    {"chunk_negative",
     kDense,
     [](Args& a) { a.options.attention_chunk = -1; },
     {"forward", "attention_chunk=-1", "need ≥ 1", "0 for none"}},
    {"tree_beside_causal",
     kDense,
     [](Args& a) {
       a.tensor[kTreeMask] = tensor(FA3_I32, {2, 5, 2}), a.mask = FA3_MASK_CAUSAL;
     },
     {"tree_mask beside mask=FA3_MASK_CAUSAL", "need mask=FA3_MASK_FULL"}},
    {"tree_beside_chunks",
     kDense,
     [](Args& a) {
       a.tensor[kTreeMask] = tensor(FA3_I32, {2, 5, 2}), a.options.attention_chunk = 3;
     },
     {"tree_mask beside attention_chunk=3"}},
    {"tree_beside_attn_mask",
     kDense,
     [](Args& a) {
       a.tensor[kTreeMask] = tensor(FA3_I32, {2, 5, 2});
       a.tensor[kAttnMask] = tensor(FA3_BOOL, {1, 1, 5, 7});
     },
     {"tree_mask beside attn_mask", "need one of them"}},
    {"tree_too_large",
     kDense,
     [](Args& a) {
       test::resize(a.tensor[kQ], 1, 65), test::resize(a.tensor[kO], 1, 65);
       test::resize(a.tensor[kLse], 2, 65);
       a.tensor[kTreeMask] = tensor(FA3_I32, {2, 65, 2});
     },
     {"tree_mask with seqlen_q=65", "at most 64"}},
    {"tree_without_a_bound",
     kVarlen,
     [](Args& a) {
       test::resize(a.tensor[kQ], 0, 65), test::resize(a.tensor[kO], 0, 65);
       test::resize(a.tensor[kLse], 1, 65);
       a.tensor[kTreeMask] = tensor(FA3_I32, {65, 2});
     },
     {"tree_mask with max_seqlen_q=65", "at most 64"}},
    {"tree_of_one_word",
     kDense,
     [](Args& a) {
       a.tensor[kTreeMask] = tensor(FA3_I32, {2, 5, 1});
     },
     {"tree_mask.shape[2]=1", "words=2"}},
    {"tree_of_floats",
     kDense,
     [](Args& a) {
       a.tensor[kTreeMask] = tensor(FA3_F32, {2, 5, 2});
     },
     {"tree_mask", "f32", "i32"}},
    {"max_logit_of_kv_heads",
     kDense,
     [](Args& a) { a.tensor[kMaxLogit] = tensor(FA3_F32, {2}); },
     {"max_logit.shape[0]=2", "heads_q=4"}},
};
INSTANTIATE_TEST_SUITE_P(Masks, MakeProblemRefusesServing, testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fa3
