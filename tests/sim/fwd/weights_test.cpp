// SPDX-License-Identifier: BSD-3-Clause
// weights_test.cpp — the forward's hook behind the softmax: a weight of P that its sum does not
// see. Against the kernel without it, whose results others judge.
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
constexpr FwdConfig hooked_weight(FwdConfig c) { return with_stages(c, 4); }

constexpr FwdConfig k16 = with_o_f32(small(MaskKind::kWindow, true));

template <FwdConfig kCfg, class F>
void add() {
  const Registration made(fwd_expression(kCfg).c_str(), kernel_of(&kit::fwd_with<kCfg, F>));
}
const bool added = (add_fwd<plain(k16)>(), add<hooked_weight(k16), kit::WithWeight>(), true);

verify::Config problem(const FwdConfig& c) {
  verify::Config made;
  made.dtype = FA3_BF16;
  made.heads_q = made.heads_kv = 4;
  made.alignment = 16;
  made.varlen_q = {150, 0, 3, 20};
  made.varlen_kv = {140, 3, 0, 65};
  made.mask = FA3_MASK_WINDOW, made.left = 30, made.right = 10;
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

}  // namespace
}  // namespace fa3::sim
