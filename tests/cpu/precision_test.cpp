// SPDX-License-Identifier: BSD-3-Clause
// precision_test.cpp — fa3_forward_args::precision on the processor: the bits of fa3_quantize and a
// forward on its codes, errors in the order that the recipes promise, NaN, and what is refused.
#include "tests/kit/precision.h"

#include <gmock/gmock.h>

#include <cmath>

namespace fa3 {
namespace {

using testing::HasSubstr;

class Precision : public kit::PrecisionTest {};

TEST_F(Precision, IsQuantizeAndForward) {
  const kit::Context context = kit::make_context();
  for (const int64_t d : {96, 64, 128}) {
    for (const bool cut : {false, true}) {
      varlen = cut;
      for (const fa3_precision precision :
           {FA3_PRECISION_FP8, FA3_PRECISION_EIGHT_BIT, FA3_PRECISION_EIGHT_BIT_ACCURATE})
        expect_quantize_and_forward(d, precision, context.get());
    }
  }
}

// RMSE of O against the call in 16 bits: fp8 > eight_bit > eight_bit_accurate, with room.
TEST_F(Precision, ErrorsComeInOrder) {
  const kit::Context context = kit::make_context();
  len_kv = 1000;
  fill(7);
  run(args(FA3_PRECISION_DEFAULT), context.get());
  const std::vector<double> exact = values();
  std::vector<double> errors;
  for (const fa3_precision precision :
       {FA3_PRECISION_FP8, FA3_PRECISION_EIGHT_BIT, FA3_PRECISION_EIGHT_BIT_ACCURATE}) {
    run(args(precision), context.get());
    errors.push_back(error_to(exact));
  }
  EXPECT_LT(errors[0], 0.1);
  EXPECT_GT(errors[0], 1.1 * errors[1]);
  EXPECT_GT(errors[1], 2 * errors[2]);
  EXPECT_GT(errors[2], 0);
}

TEST_F(Precision, NanReachesTheRowsThatSeeItsBlock) {
  const kit::Context context = kit::make_context();
  for (const fa3_precision precision : {FA3_PRECISION_FP8, FA3_PRECISION_EIGHT_BIT}) {
    expect_nan_of_query(precision, context.get());
    expect_nan_of_key(precision, context.get());
  }
}

TEST_F(Precision, Refusals) {
  const kit::Context context = kit::make_context();
  fill();
  const auto refused = [&](auto&& change, const char* says) {
    fa3_forward_args a = args(FA3_PRECISION_FP8);
    change(a);
    EXPECT_EQ(fa3_forward(context.get(), &a, nullptr), FA3_INVALID_ARGUMENT) << says;
    EXPECT_THAT(fa3_last_error(), HasSubstr(says));
  };
  refused([](fa3_forward_args& a) { a.precision = 4; }, "precision=4 is unknown");
  refused([](fa3_forward_args& a) { a.precision = -1; }, "precision=-1");
  refused([](fa3_forward_args& a) { a.precision_reserved = 1; }, "precision_reserved=1");
  refused([](fa3_forward_args& a) { a.precision = 0; }, "precision_seed=42");
  refused([](fa3_forward_args& a) { a.q.dtype = a.k.dtype = a.v.dtype = FA3_F32; },
          "q.dtype=f32, need f16 or bf16; cast it");
  refused(
      [](fa3_forward_args& a) {
        a.q.dtype = a.k.dtype = a.v.dtype = FA3_F8_E4M3;
        a.o.dtype = FA3_F32;
      },
      "leave precision 0");
}

TEST_F(Precision, ExplainSaysWhatBecomes8Bits) {
  const kit::Context context = kit::make_context();
  fill();
  const fa3_forward_args a = args(FA3_PRECISION_EIGHT_BIT);
  std::string text(16384, '\0');
  ASSERT_EQ(fa3_explain(context.get(), FA3_OP_FORWARD, &a, text.data(), text.size(), nullptr),
            FA3_OK)
      << fa3_last_error();
  EXPECT_THAT(text, HasSubstr("\"precision\": \"eight_bit\""));
  EXPECT_THAT(text, HasSubstr("\"fp8_alone\": false"));
}

}  // namespace
}  // namespace fa3
