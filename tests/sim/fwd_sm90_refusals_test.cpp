// SPDX-License-Identifier: BSD-3-Clause
// fwd_sm90_refusals_test.cpp — what backend sim declines through the C interface, by name.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

using testing::HasSubstr;
using verify::Config;
using verify::Layout;

void expect_refused(const fa3_forward_args& args, const std::vector<std::string>& parts) {
  EXPECT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_UNSUPPORTED);
  for (const std::string& part : parts) EXPECT_THAT(fa3_last_error(), HasSubstr(part));
}

TEST(SimFwdSm90Refusals, MisalignedData_NamesTheTensor) {
  const Config c = causal();
  const verify::Tensors t = verify::make_tensors(c);
  const auto shift = [](fa3_tensor& x) { x.data = static_cast<std::byte*>(x.data) + 2; };
  fa3_forward_args args = verify::forward_args(c, t);
  shift(args.q);
  expect_refused(args, {" q.data=", "2 bytes past a multiple of 16", "copy"});
  args = verify::forward_args(c, t);
  shift(args.k);
  expect_refused(args, {" k.data="});
  args = verify::forward_args(c, t);
  shift(args.v);
  expect_refused(args, {" v.data="});
  args = verify::forward_args(c, t);
  shift(args.o);
  expect_refused(args, {" o.data="});
}

TEST(SimFwdSm90Refusals, Strides_NameTheTensor) {
  Config c = causal();
  c.layout = Layout::kPadded;
  const verify::Tensors t = verify::make_tensors(c);
  fa3_forward_args args = verify::forward_args(c, t);
  args.q.stride[1] += 1;
  expect_refused(args, {"q: row stride", "multiple of 8"});
  args = verify::forward_args(c, t);
  args.v.stride[1] += 4;
  expect_refused(args, {"v: row stride", "multiple of 8"});
}

TEST(SimFwdSm90Refusals, TypesAndHeadDims_NameTheArgument) {
  Config c = causal();
  c.dtype = FA3_F32;
  EXPECT_THAT(verify::check(c, simulator()).error, HasSubstr("dtype f32"));
  c = causal();
  c.head_dim_qk = 12;
  EXPECT_THAT(verify::check(c, simulator()).error, HasSubstr("head_dim_qk=12"));
  c = causal();
  c.head_dim_v = 264;
  EXPECT_THAT(verify::check(c, simulator()).error, HasSubstr("head_dim_v=264"));
}

}  // namespace
}  // namespace fa3
