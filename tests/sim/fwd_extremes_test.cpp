// SPDX-License-Identifier: BSD-3-Clause
// fwd_extremes_test.cpp — the forward kernel of Hopper, simulated, where numbers and lengths are
// extreme: scores that FP32 rounds by more than 1, and no sequence at all.
#include <cmath>
#include <functional>
#include <limits>

#include "tests/kit/context.h"

namespace fa3 {
namespace {

using verify::Config;
using verify::Tensors;

fa3_context* simulator() {
  static const kit::Context context = [] {
    fa3_context_options options = kit::default_options();
    options.backend = FA3_BACKEND_SIM;
    return kit::make_context(options);
  }();
  return context.get();
}

Config problem(fa3_dtype dtype) {
  Config c;
  c.dtype = dtype;
  c.head_dim_qk = c.head_dim_v = 64;
  c.heads_q = 2;
  c.heads_kv = 1;
  c.seqlen_q = 200;
  c.seqlen_kv = 300;
  c.alignment = 16;
  return c;
}

// Every mask and score that has code of its own.
void expect_right_in_all_forms(Config c) {
  for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL, FA3_MASK_WINDOW}) {
    c.mask = mask;
    if (mask == FA3_MASK_WINDOW) c.left = 70, c.right = 9;
    for (const double scale : {0.0, -0.3}) {
      c.softmax_scale = scale;
      kit::expect_right(c, simulator());
    }
  }
}

TEST(SimFwdExtremes, HugeScores_StayFinite) {
  for (const double magnitude : {1e5, 1e9, 1e15}) {
    Config c = problem(FA3_BF16);
    c.magnitude = magnitude;
    expect_right_in_all_forms(c);
  }
  Config c = problem(FA3_F16);
  c.magnitude = 2e4;
  expect_right_in_all_forms(c);
  c = problem(FA3_BF16);
  c.magnitude = 1e5;
  c.softcap = 1e9;
  kit::expect_right(c, simulator());
}

// Maxima that become huge, and huge ones that are left behind: KV tiles are visited from the last.
TEST(SimFwdExtremes, HugeScoresOfSomeKeys_StayFinite) {
  const Config c = problem(FA3_BF16);
  for (const auto& [first, last] : {std::pair{0, 3}, {100, 200}, {290, 300}}) {
    for (const double factor : {1e9, -1e9}) {
      const Tensors t = verify::make_tensors(c);
      for (int64_t key = first; key < last; ++key) {
        for (int64_t i = 0; i < c.head_dim_qk; ++i) {
          const verify::Index at{0, key, 0, i};
          verify::set(t.k.view, at, factor * verify::get(t.k.view, at));
        }
      }
      const fa3_forward_args args = verify::forward_args(c, t);
      ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
      for (const verify::OutputResult& r : verify::compare_forward(args))
        EXPECT_TRUE(r.ok) << verify::to_text(r);
    }
  }
}

// Packed queries have rows, cu_seqlens_q = {0} says that they belong to no sequence.
TEST(SimFwdExtremes, NoSequences_RowsAreEmpty) {
  for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL}) {
    for (const bool packed_kv : {true, false}) {
      Config c = problem(FA3_BF16);
      c.mask = mask;
      c.varlen_q = {150};
      if (packed_kv) c.varlen_kv = {90};
      const Tensors t = verify::make_tensors(c);
      fa3_forward_args args = verify::forward_args(c, t);
      args.cu_seqlens_q.shape[0] = 1;
      if (packed_kv) {
        args.cu_seqlens_kv.shape[0] = 1;
      } else {
        args.k.shape[0] = args.v.shape[0] = 0;
      }
      ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
      for (int64_t row = 0; row < 150; ++row) {
        for (int64_t head = 0; head < c.heads_q; ++head) {
          ASSERT_EQ(verify::get(args.lse, {head, row}), -std::numeric_limits<double>::infinity());
          for (int64_t i = 0; i < c.head_dim_v; ++i)
            ASSERT_EQ(verify::get(args.o, {row, head, i}), 0) << row << ", " << head << ", " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fa3
