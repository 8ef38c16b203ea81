// SPDX-License-Identifier: BSD-3-Clause
// metamorphic_test.cpp — relations that must hold between two runs, whatever the right values.
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/kit/context.h"

namespace fa3 {
namespace {

using verify::Config;
using verify::Index;
using verify::Tensors;

// A problem of some heads and 70 keys on the tested backend.
struct Problem {
  Config config;
  kit::Context context = kit::make_context();
  Tensors tensors;

  explicit Problem(int32_t dtype, bool backward = false) {
    config.dtype = dtype;
    config.out_dtype = FA3_F32;
    config.backward = backward;
    config.batch = 2;
    config.heads_q = 4;
    config.heads_kv = 2;
    config.head_dim_qk = config.head_dim_v = 48;
    config.seqlen_q = 23;
    config.seqlen_kv = 70;
    config.seed = 17;
    tensors = verify::make_tensors(config);
  }

  void forward() const { forward(tensors.k, tensors.v, tensors.o, tensors.lse); }
  void forward(const verify::Tensor& k, const verify::Tensor& v, const verify::Tensor& o,
               const verify::Tensor& lse) const {
    fa3_forward_args args = verify::forward_args(config, tensors);
    args.k = k.view;
    args.v = v.view;
    args.o = o.view;
    args.lse = lse.view;
    ASSERT_EQ(fa3_forward(context.get(), &args, nullptr), FA3_OK) << fa3_last_error();
  }
  void backward() const {
    forward();
    const fa3_backward_args args = verify::backward_args(config, tensors);
    ASSERT_EQ(fa3_backward(context.get(), &args, nullptr), FA3_OK) << fa3_last_error();
  }
  // Are O and LSE as they should be for the problem as it was drawn?
  void expect_right() const {
    for (const auto& r : verify::compare_forward(verify::forward_args(config, tensors)))
      EXPECT_TRUE(r.ok) << verify::to_text(r);
  }
};

// Keys from[0], from[1], … of a (batch, seqlen, heads, head_dim) tensor.
verify::Tensor select(const verify::Tensor& source, const std::vector<int64_t>& from) {
  const int64_t* shape = source.view.shape;
  const verify::Tensor result = verify::make_tensor(
      source.view.dtype, {shape[0], static_cast<int64_t>(from.size()), shape[2], shape[3]});
  verify::for_each_row(result.view, [&](const Index& row, void*) {
    Index to = row, at = row;
    at[1] = from[row[1]];
    for (int64_t c = 0; c < shape[3]; ++c) {
      to[3] = at[3] = c;
      verify::set(result.view, to, verify::get(source.view, at));
    }
  });
  return result;
}

std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> indices(end - begin);
  std::iota(indices.begin(), indices.end(), begin);
  return indices;
}

class CpuMetamorphic : public ::testing::TestWithParam<int32_t> {};

TEST_P(CpuMetamorphic, PermutedKeys_SameResult) {
  const Problem x(GetParam());
  std::vector<int64_t> order = range(0, 70);
  verify::Random random(3);
  for (int64_t i = 69; i > 0; --i) std::swap(order[i], order[random.between(0, i)]);
  x.forward(select(x.tensors.k, order), select(x.tensors.v, order), x.tensors.o, x.tensors.lse);
  x.expect_right();
}

// O and LSE of two halves of the keys, merged by their LSE, are those of the whole: also where a
// half is one key.
TEST_P(CpuMetamorphic, KeysInTwoParts_MergeByLse) {
  for (const int64_t cut : {1, 35, 64, 69}) {
    const Problem x(GetParam());
    const Tensors a = verify::make_tensors(x.config), b = verify::make_tensors(x.config);
    x.forward(select(x.tensors.k, range(0, cut)), select(x.tensors.v, range(0, cut)), a.o, a.lse);
    x.forward(select(x.tensors.k, range(cut, 70)), select(x.tensors.v, range(cut, 70)), b.o, b.lse);
    verify::for_each_row(x.tensors.o.view, [&](const Index& row, void*) {
      const Index at{row[0], row[2], row[1]};
      const double la = verify::get(a.lse.view, at), lb = verify::get(b.lse.view, at);
      const double lse = std::max(la, lb) + std::log1p(std::exp(-std::abs(la - lb)));
      verify::set(x.tensors.lse.view, at, lse);
      Index i = row;
      for (i[3] = 0; i[3] < 48; ++i[3])
        verify::set(x.tensors.o.view, i,
                    std::exp(la - lse) * verify::get(a.o.view, i) +
                        std::exp(lb - lse) * verify::get(b.o.view, i));
    });
    x.expect_right();
  }
}

TEST_P(CpuMetamorphic, EveryKeyTwice_ShiftsLseByLn2) {
  const Problem x(GetParam());
  std::vector<int64_t> twice = range(0, 70);
  const std::vector<int64_t> again = twice;
  twice.insert(twice.end(), again.begin(), again.end());
  x.forward(select(x.tensors.k, twice), select(x.tensors.v, twice), x.tensors.o, x.tensors.lse);
  verify::for_each_row(x.tensors.lse.view, [&](const Index& row, void*) {
    Index at = row;
    for (at[2] = 0; at[2] < 23; ++at[2])
      verify::set(x.tensors.lse.view, at, verify::get(x.tensors.lse.view, at) - std::log(2.0));
  });
  x.expect_right();
}

TEST_P(CpuMetamorphic, DoubledQueryHalvedScale_SameResult) {
  Problem x(GetParam());
  verify::for_each_row(x.tensors.q.view, [&](const Index& row, void*) {
    Index at = row;
    for (at[3] = 0; at[3] < 48; ++at[3])
      verify::set(x.tensors.q.view, at, 2 * verify::get(x.tensors.q.view, at));
  });
  x.config.softmax_scale = 0.5 / std::sqrt(48.0);
  x.forward();
  const Problem original(GetParam());
  const fa3_tensor& o = x.tensors.o.view;
  verify::for_each_row(o, [&](const Index& row, void*) {
    Index at = row;
    for (at[3] = 0; at[3] < 48; ++at[3])
      verify::set(original.tensors.o.view, at, verify::get(o, at));
  });
  verify::for_each_row(x.tensors.lse.view, [&](const Index& row, void*) {
    Index at = row;
    for (at[2] = 0; at[2] < 23; ++at[2])
      verify::set(original.tensors.lse.view, at, verify::get(x.tensors.lse.view, at));
  });
  original.expect_right();
}

// Σⱼ dSᵢⱼ = 0 without dLSE, so a shift common to all keys changes nothing: Σⱼ dKⱼ = 0. And the rows
// of P sum to 1: Σⱼ dVⱼ = Σᵢ dOᵢ over the query heads of the group.
TEST_P(CpuMetamorphic, GradientSums_AreConserved) {
  const Problem x(GetParam(), true);
  x.backward();
  const Tensors& t = x.tensors;
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t c = 0; c < 48; ++c) {
        double dk = 0, dk_size = 0, dv = 0, dout = 0, size = 0;
        for (int64_t j = 0; j < 70; ++j) {
          dk += verify::get(t.dk.view, {b, j, h, c});
          dk_size += std::abs(verify::get(t.dk.view, {b, j, h, c}));
          dv += verify::get(t.dv.view, {b, j, h, c});
        }
        for (int64_t i = 0; i < 23; ++i)
          for (int64_t g = 0; g < 2; ++g) {
            dout += verify::get(t.dout.view, {b, i, 2 * h + g, c});
            size += std::abs(verify::get(t.dout.view, {b, i, 2 * h + g, c}));
          }
        const double unit = verify::unit_roundoff(GetParam());
        EXPECT_LE(std::abs(dv - dout), 4 * unit * size) << b << h << c;
        EXPECT_LE(std::abs(dk), 8 * unit * dk_size) << b << h << c;
      }
}

INSTANTIATE_TEST_SUITE_P(Types, CpuMetamorphic, ::testing::Values(FA3_F32, FA3_F16, FA3_BF16),
                         [](const auto& info) { return verify::dtype_text(info.param); });

}  // namespace
}  // namespace fa3
