// SPDX-License-Identifier: BSD-3-Clause
// conversions_test.cpp — 16-bit elements through the cpu backend: every value, rounded to the
// nearest, whatever the processor's instructions for them are.
#include <cmath>
#include <limits>

#include "tests/kit/context.h"

namespace fa3 {
namespace {

using verify::Config;
using verify::Tensors;

class CpuConversions : public ::testing::TestWithParam<int32_t> {
 protected:
  // 256 sequences of one query and `keys` equal keys: O is the mean of the values.
  Config means(int64_t keys) const {
    Config c;
    c.dtype = GetParam();
    c.batch = 256;
    c.seqlen_q = 1;
    c.seqlen_kv = keys;
    c.head_dim_qk = 1;
    c.head_dim_v = 256;
    return c;
  }
  double value_of(uint16_t bits) const { return verify::decode(GetParam(), &bits); }
  uint16_t bits_of(double value) const {
    uint16_t bits;
    verify::encode(GetParam(), value, &bits);
    return bits;
  }

  static void run(const Config& c, const Tensors& t) {
    verify::fill(t.k.view, 0);
    const fa3_forward_args args = verify::forward_args(c, t);
    ASSERT_EQ(fa3_forward(kit::make_context().get(), &args, nullptr), FA3_OK) << fa3_last_error();
  }
};

TEST_P(CpuConversions, EveryValue_PassesThrough) {
  const Config c = means(1);
  const Tensors t = verify::make_tensors(c);
  uint32_t next = 0;
  verify::generate(t.v.view, [&] { return value_of(static_cast<uint16_t>(next++)); });
  ASSERT_EQ(next, 0x10000u);
  run(c, t);
  for (int64_t b = 0; b < 256; ++b) {
    for (int64_t i = 0; i < 256; ++i) {
      const double v = verify::get(t.v.view, {b, 0, 0, i}), o = verify::get(t.o.view, {b, 0, 0, i});
      if (!(std::isnan(v) ? std::isnan(o) : v == o)) FAIL() << "V = " << v << " gives O = " << o;
    }
  }
}

TEST_P(CpuConversions, MeanOfTwoValues_IsRoundedToNearest) {
  const Config c = means(2);
  const Tensors t = verify::make_tensors(c);
  // Finite values of every exponent, the second of a pair close to the first.
  uint32_t next = 0;
  verify::generate(t.v.view, [&] {
    const uint32_t pair = next / 256 / 2 * 256 + next % 256;
    const uint32_t second = next++ / 256 % 2;
    const auto bits = static_cast<uint16_t>(pair * 40503 % 0x7c00 + second * (pair % 7));
    const double value = value_of(bits);
    return std::isfinite(value) ? value : 1;
  });
  run(c, t);
  for (int64_t b = 0; b < 256; ++b) {
    for (int64_t i = 0; i < 256; ++i) {
      const double x = verify::get(t.v.view, {b, 0, 0, i}), y = verify::get(t.v.view, {b, 1, 0, i});
      const double mean = (x + y) / 2, o = verify::get(t.o.view, {b, 0, 0, i});
      // Sum and quotient in FP32 may turn a tie; a step to either side is far beyond them.
      const double nearest = value_of(bits_of(mean));
      const double slack = 1e-6 * std::abs(mean) + std::numeric_limits<float>::denorm_min();
      EXPECT_LE(std::abs(o - mean), std::abs(nearest - mean) + slack) << x << " and " << y;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CpuConversions, ::testing::Values(FA3_F16, FA3_BF16),
                         [](const auto& info) { return verify::dtype_text(info.param); });

}  // namespace
}  // namespace fa3
