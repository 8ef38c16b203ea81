// SPDX-License-Identifier: BSD-3-Clause
// bwd_deterministic_test.cpp — dQ summed as integers: what is not finite stands where it does by
// default, and errors stay what they are beside outliers, tiny and huge values.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/kit/thorough.h"
#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

using verify::Config;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Config config(int64_t head_dim) {
  Config c = causal();
  c.backward = true;
  c.heads_q = 2, c.heads_kv = 1;
  c.head_dim_qk = c.head_dim_v = head_dim;
  c.seqlen_q = 150, c.seqlen_kv = 280;
  return c;
}

// Every element of the first batch entry and head.
void scale(const fa3_tensor& t, double by) {
  for (int64_t b = 0; b < t.shape[0]; ++b)
    for (int64_t i = 0; i < t.shape[1]; ++i)
      for (int64_t h = 0; h < t.shape[2]; ++h)
        for (int64_t c = 0; c < t.shape[3]; ++c)
          verify::set(t, {b, i, h, c}, by * verify::get(t, {b, i, h, c}));
}

struct Put {
  const char* name;
  std::function<void(const fa3_backward_args&)> change;
};

class SimBwdDeterministic : public testing::TestWithParam<size_t> {
 protected:
  fa3_backward_args run(const Config& c, const verify::Tensors& t, bool deterministic) {
    fa3_backward_args args = verify::backward_args(c, t);
    args.deterministic = deterministic;
    EXPECT_EQ(fa3_backward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
    return args;
  }
  void forward(const Config& c, const verify::Tensors& t) {
    const fa3_forward_args args = verify::forward_args(c, t);
    ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
  }
};

char kind_of(double x) { return std::isnan(x) ? 'n' : x == kInf ? '+' : x == -kInf ? '-' : '.'; }

// A letter for each element of dQ.
std::string kinds_of(const fa3_tensor& t) {
  std::string kinds;
  for (int64_t b = 0; b < t.shape[0]; ++b)
    for (int64_t i = 0; i < t.shape[1]; ++i)
      for (int64_t h = 0; h < t.shape[2]; ++h)
        for (int64_t c = 0; c < t.shape[3]; ++c) kinds += kind_of(verify::get(t, {b, i, h, c}));
  return kinds;
}

class SimBwdNotFinite : public SimBwdDeterministic {};

// Causal, 130 keys more than queries: query i sees keys to i + 130.
const Put kNotFinite[] = {
    {"NanInK",
     [](const auto& a) {
       verify::set(a.k, {0, 200, 0, 3}, kNan);
     }},
    {"InfInK",
     [](const auto& a) {
       verify::set(a.k, {0, 200, 0, 3}, kInf);
     }},
    {"NanInV",
     [](const auto& a) {
       verify::set(a.v, {0, 200, 0, 3}, kNan);
     }},
    {"InfInV",
     [](const auto& a) {
       verify::set(a.v, {0, 270, 0, 3}, -kInf);
     }},
    {"NanInQ",
     [](const auto& a) {
       verify::set(a.q, {0, 70, 1, 0}, kNan);
     }},
    {"InfInQ",
     [](const auto& a) {
       verify::set(a.q, {0, 70, 1, 0}, kInf);
     }},
    {"NanInDout",
     [](const auto& a) {
       verify::set(a.dout, {0, 149, 1, 0}, kNan);
     }},
    {"InfInDout",
     [](const auto& a) {
       verify::set(a.dout, {0, 0, 0, 5}, kInf);
     }},
    {"HugeDoutAndV",
     [](const auto& a) {
       verify::set(a.dout, {0, 20, 0, 5}, 1e30);
       verify::set(a.v, {0, 100, 0, 5}, 1e30);
     }},
};

TEST_P(SimBwdNotFinite, StandsWhereItDoesByDefault) {
  // dQ apart from the tiles of Q and dO, and in their place.
  for (const int64_t head_dim : {kit::kSanitized ? kit::kSanitizedHeadDim : 128, 256}) {
    if (kit::kSanitized && head_dim != kit::kSanitizedHeadDim) continue;
    if (!kit::due(GetParam() + (head_dim == 256 ? 1 : 0), 2)) continue;
    SCOPED_TRACE(head_dim);
    const Config c = config(head_dim);
    const verify::Tensors t = verify::make_tensors(c);
    kNotFinite[GetParam()].change(verify::backward_args(c, t));
    forward(c, t);
    const std::string by_default = kinds_of(run(c, t, false).dq);
    EXPECT_NE(by_default.find_first_not_of('.'), std::string::npos) << "nothing to find";
    EXPECT_EQ(kinds_of(run(c, t, true).dq), by_default);
  }
}
INSTANTIATE_TEST_SUITE_P(Values, SimBwdNotFinite, testing::Range(size_t{0}, std::size(kNotFinite)),
                         [](const auto& put) { return std::string(kNotFinite[put.param].name); });

class SimBwdRange : public SimBwdDeterministic {};

const Put kRange[] = {
    {"OutlierInK",
     [](const auto& a) {
       verify::set(a.k, {0, 100, 0, 3}, 200);
     }},
    {"OutlierInV",
     [](const auto& a) {
       verify::set(a.v, {0, 100, 0, 3}, 1000);
     }},
    {"OutliersInBoth",
     [](const auto& a) {
       verify::set(a.k, {0, 100, 0, 3}, -100);
       verify::set(a.v, {0, 100, 0, 3}, 1000);
     }},
    {"OutlierInDout",
     [](const auto& a) {
       verify::set(a.dout, {0, 100, 0, 3}, 1e6);
     }},
    {"LargeChannelOfK",
     [](const auto& a) {
       for (int64_t i = 0; i < a.k.shape[1]; ++i) verify::set(a.k, {0, i, 0, 7}, 50 + i % 3);
     }},
    {"TinyDout", [](const auto& a) { scale(a.dout, 1e-25); }},
    {"HugeDout", [](const auto& a) { scale(a.dout, 1e25); }},
    {"ZeroDout", [](const auto& a) { scale(a.dout, 0); }},
    {"TinyV", [](const auto& a) { scale(a.v, 1e-25); }},
    {"ZeroV", [](const auto& a) { scale(a.v, 0); }},
    {"ZeroK", [](const auto& a) { scale(a.k, 0); }},
};

// The bound of a row is far above what its elements are, or near what FP32 can hold.
TEST_P(SimBwdRange, ErrorsAreWithinTheirBounds) {
  if (kit::kSanitized) GTEST_SKIP() << "other values in the same places: nothing for sanitizers";
  for (const int64_t head_dim : {64, 128}) {
    if (!kit::due(GetParam() + (head_dim == 128 ? 1 : 0), 2)) continue;
    SCOPED_TRACE(head_dim);
    Config c = config(head_dim);
    c.deterministic = true;
    const verify::Tensors t = verify::make_tensors(c);
    kRange[GetParam()].change(verify::backward_args(c, t));
    forward(c, t);
    for (const verify::OutputResult& r : verify::compare_backward(run(c, t, true)))
      EXPECT_TRUE(r.ok) << verify::to_text(r);
  }
}
INSTANTIATE_TEST_SUITE_P(Values, SimBwdRange, testing::Range(size_t{0}, std::size(kRange)),
                         [](const auto& put) { return std::string(kRange[put.param].name); });

}  // namespace
}  // namespace fa3
