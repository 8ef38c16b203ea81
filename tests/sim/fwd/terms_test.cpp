// SPDX-License-Identifier: BSD-3-Clause
// terms_test.cpp — the forward's hooks behind the softmax: a term of the row's sum, and a weight of
// P that its sum does not see. Each against the kernel without it, whose results others judge.
#include <cmath>

#include "sim/fwd/configs.h"
#include "sim/fwd/kit.h"
#include "tests/kit/fwd_functors.h"

namespace fa3::sim {
namespace {

using verify::get;

// The kernel with functors stands for a configuration that differs in its stages alone.
constexpr FwdConfig with_stages(FwdConfig c, int stages) {
  c.tile.stages = stages;
  return c;
}
constexpr FwdConfig plain(FwdConfig c) { return with_stages(c, 2); }
constexpr FwdConfig hooked_term(FwdConfig c) { return with_stages(c, 3); }
constexpr FwdConfig hooked_weight(FwdConfig c) { return with_stages(c, 4); }

constexpr FwdConfig k16 = with_o_f32(small(MaskKind::kWindow, true));
constexpr FwdConfig kE4m3 = with_o_f32(with_e4m3(small(MaskKind::kCausal, false), 0));
constexpr FwdConfig kInt8 = with_o_f32(with_int8(with_e4m3(small(MaskKind::kCausal, false), 0)));

template <FwdConfig kCfg, class F>
void add() {
  const Registration made(fwd_expression(kCfg).c_str(), kernel_of(&kit::fwd_with<kCfg, F>));
}
template <FwdConfig... kAll>
void add_all() {
  (add_fwd<plain(kAll)>(), ...);
  (add<hooked_term(kAll), kit::WithTerm>(), ...);
}
const bool added = (add_all<k16, kE4m3, kInt8>(), add<hooked_weight(k16), kit::WithWeight>(), true);

verify::Config problem(const FwdConfig& c) {
  verify::Config made;
  made.dtype = FA3_BF16;
  made.heads_q = made.heads_kv = 4;
  made.alignment = 16;
  made.seqlen_q = 150;
  made.seqlen_kv = 140;  // causal: the first ten rows see no key
  if (c.load.ragged) {
    made.varlen_q = {150, 0, 3, 20};
    made.varlen_kv = {140, 3, 0, 65};
    made.mask = FA3_MASK_WINDOW, made.left = 30, made.right = 10;
  } else {
    made.mask = FA3_MASK_CAUSAL;
  }
  return in_types_of(c, made);
}

// (row, head) of O and LSE, dense or varlen.
struct Rows {
  const verify::Tensors& tensors;

  int64_t count() const { return tensors.o.view.shape[tensors.o.view.rank - 3]; }
  double o(int64_t row, int64_t head, int64_t column) const {
    const fa3_tensor& t = tensors.o.view;
    return t.rank == 3 ? get(t, {row, head, column}) : get(t, {0, row, head, column});
  }
  double lse(int64_t row, int64_t head) const {
    const fa3_tensor& t = tensors.lse.view;
    return t.rank == 2 ? get(t, {head, row}) : get(t, {0, head, row});
  }
};

class FwdTerms : public testing::TestWithParam<FwdConfig> {
 protected:
  TestRuntime runtime_;
};

// A query that sees keys becomes NaN, but for INT8, which has none.
void make_nan(const FwdRun& run, const FwdConfig& c) {
  const fa3_tensor& q = run.tensors().q.view;
  if (c.types.qk == MmaType::kS8) return;
  verify::set(q, q.rank == 3 ? verify::Index{12, 1, 5} : verify::Index{0, 12, 1, 5}, NAN);
}

// rounding: of O in FP32, where V's offset cancels most of it.
void expect_term(double o, double lse, double old_o, double old_lse, double term, double rounding) {
  if (std::isnan(old_lse)) {
    EXPECT_TRUE(std::isnan(o) && std::isnan(lse));
    return;
  }
  const double top = std::max(old_lse, term);
  if (std::isinf(top)) {
    EXPECT_EQ(lse, top);
    EXPECT_EQ(o, 0);
    return;
  }
  const double want = top + std::log(std::exp(old_lse - top) + std::exp(term - top));
  EXPECT_NEAR(lse, want, 2e-6 * (1 + std::abs(top)));
  const double share = std::exp(old_lse - want);  // of the keys; 0 where there are none
  EXPECT_NEAR(o, share == 0 ? 0 : old_o * share, 2e-5 * std::abs(old_o * share) + rounding);
}

TEST_P(FwdTerms, CountAsKeysWithoutV) {
  const FwdConfig& c = GetParam();
  FwdRun without(runtime_, problem(c), plain(c)), with(runtime_, problem(c), hooked_term(c));
  make_nan(without, c), make_nan(with, c);
  ASSERT_NO_THROW(without.run());
  ASSERT_NO_THROW(with.run());
  for (const verify::OutputResult& r : without.judge()) EXPECT_TRUE(r.ok) << to_text(r);
  const Rows old{without.tensors()}, now{with.tensors()};
  int unseen = 0;
  for (int64_t row = 0; row < now.count(); ++row) {
    for (int64_t head = 0; head < 4; ++head) {
      const double term = static_cast<double>(kit::HeadTerm::of_head(static_cast<i32>(head)));
      unseen += std::isinf(old.lse(row, head)) ? 1 : 0;
      for (int64_t column = 0; column < 64; column += 9)
        expect_term(now.o(row, head, column), now.lse(row, head), old.o(row, head, column),
                    old.lse(row, head), term, c.types.v8() ? 5e-7 : 1e-30);
      ASSERT_FALSE(HasFailure()) << row << ", " << head;
    }
  }
  EXPECT_GT(unseen, 0);
}

// V of the keys that a query drops as 0, of the others doubled.
void weigh_v(const verify::Tensors& tensors, const std::vector<i32>& begins, i32 parity) {
  const fa3_tensor& v = tensors.v.view;
  const int64_t rows = v.shape[v.rank - 3];
  for (int64_t row = 0; row < rows; ++row) {
    int64_t begin = 0;
    for (const i32 b : begins)
      if (b <= row) begin = b;
    const bool keeps = kit::EveryOtherKey::keeps(parity, static_cast<i32>(row - begin));
    for (int64_t head = 0; head < v.shape[v.rank - 2]; ++head) {
      for (int64_t column = 0; column < v.shape[v.rank - 1]; ++column) {
        const verify::Index at =
            v.rank == 3 ? verify::Index{row, head, column} : verify::Index{0, row, head, column};
        verify::set(v, at, keeps ? 2 * get(v, at) : 0);
      }
    }
  }
}

TEST(FwdWeights, ChangeOAlone) {
  TestRuntime runtime;
  FwdRun with(runtime, problem(k16), hooked_weight(k16));
  ASSERT_NO_THROW(with.run());
  const std::vector<i32> begins_q = with.lengths(kCuSeqlensQ),
                         begins_kv = with.lengths(kCuSeqlensKv);
  const Rows now{with.tensors()};
  for (const i32 parity : {0, 1}) {
    FwdRun without(runtime, problem(k16), plain(k16));
    weigh_v(without.tensors(), begins_kv, parity);
    ASSERT_NO_THROW(without.run());
    const Rows old{without.tensors()};
    for (int64_t row = 0; row < now.count(); ++row) {
      int64_t begin = 0;
      for (const i32 b : begins_q)
        if (b <= row) begin = b;
      if ((row - begin) % 2 != parity) continue;
      for (int64_t head = 0; head < 4; ++head) {
        ASSERT_EQ(now.lse(row, head), old.lse(row, head)) << row << ", " << head;
        for (int64_t column = 0; column < 64; ++column)
          ASSERT_EQ(now.o(row, head, column), old.o(row, head, column)) << row << ", " << head;
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<FwdConfig>& info) {
  return info.param.types.qk == MmaType::kBf16   ? "bf16_varlen_window"
         : info.param.types.qk == MmaType::kE4m3 ? "e4m3_causal"
                                                 : "int8_causal";
}

INSTANTIATE_TEST_SUITE_P(All, FwdTerms, testing::Values(k16, kE4m3, kInt8), name_of);

}  // namespace
}  // namespace fa3::sim
