// SPDX-License-Identifier: BSD-3-Clause
// fwd_f32_test.cpp — O in FP32 from inputs of 16 and 8 bits, in the forward kernel of Hopper in the
// simulator.
#include <gmock/gmock.h>

#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

struct Inputs {
  const char* name;
  int32_t dtype, v_dtype;
};
void PrintTo(const Inputs& inputs, std::ostream* out) { *out << inputs.name; }

class SimFwdF32 : public testing::TestWithParam<Inputs> {};

TEST_P(SimFwdF32, IsRight) {
  for (const int64_t head_dim : {64, 128, 256}) {
    if (kit::kSanitized && head_dim != kit::kSanitizedHeadDim) continue;
    verify::Config c = causal();
    c.dtype = GetParam().dtype, c.v_dtype = GetParam().v_dtype, c.out_dtype = FA3_F32;
    c.head_dim_qk = head_dim, c.head_dim_v = head_dim - 16;
    kit::expect_right(c, simulator());
    c.varlen_q = {130, 0, 1, 70}, c.varlen_kv = {200, 7, 0, 66};
    c.spare_q = 9, c.spare_kv = 3;
    kit::expect_right(c, simulator());
    c.varlen_q = c.varlen_kv = {};
    c.spare_q = c.spare_kv = 0;
    c.batch = 2, c.seqused_q = {200, 30}, c.seqused_kv = {0, 99};
    c.layout = verify::Layout::kHeadsFirst;
    kit::expect_right(c, simulator());
  }
}
constexpr Inputs kInputs[] = {{"BF16", FA3_BF16, 0},
                              {"E4M3", FA3_F8_E4M3, 0},
                              {"I8", FA3_I8, 0},
                              {"I8WithV16", FA3_I8, FA3_BF16}};
INSTANTIATE_TEST_SUITE_P(Types, SimFwdF32, testing::ValuesIn(kInputs),
                         [](const auto& inputs) { return std::string(inputs.param.name); });

TEST(SimFwdF32Declined, Softcap_NamesTheRemedy) {
  verify::Config c = causal();
  c.out_dtype = FA3_F32, c.softcap = 3;
  const verify::Tensors t = verify::make_tensors(c);
  const fa3_forward_args args = verify::forward_args(c, t);
  EXPECT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_UNSUPPORTED);
  EXPECT_THAT(fa3_last_error(), testing::HasSubstr("o of f32"));
  EXPECT_THAT(fa3_last_error(), testing::HasSubstr("backend cpu"));
}

}  // namespace
}  // namespace fa3
