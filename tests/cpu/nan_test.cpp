// SPDX-License-Identifier: BSD-3-Clause
// nan_test.cpp — where NaN and Inf may go and where not (fa3.h, "NaN, Inf"), forward and backward.
//
// The comparator demands NaN and Inf exactly where the reference has them; the reference's own
// rules are tested in tests/unit/reference_test.cpp.
#include <cmath>
#include <functional>
#include <limits>

#include "tests/kit/context.h"

namespace fa3 {
namespace {

using verify::Config;
using verify::Index;
using verify::Tensors;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Runs forward and backward of a problem whose inputs `spoil` has changed, and judges every output.
void expect_right_after(Config c, const std::function<void(const Tensors&)>& spoil) {
  const kit::Context context = kit::make_context();
  c.backward = true;
  const Tensors t = verify::make_tensors(c);
  spoil(t);
  const fa3_forward_args forward = verify::forward_args(c, t);
  ASSERT_EQ(fa3_forward(context.get(), &forward, nullptr), FA3_OK) << fa3_last_error();
  for (const verify::OutputResult& r : verify::compare_forward(forward))
    EXPECT_TRUE(r.ok) << verify::to_text(r);
  const fa3_backward_args backward = verify::backward_args(c, t);
  ASSERT_EQ(fa3_backward(context.get(), &backward, nullptr), FA3_OK) << fa3_last_error();
  for (const verify::OutputResult& r : verify::compare_backward(backward))
    EXPECT_TRUE(r.ok) << verify::to_text(r);
}

// All elements of one token and head.
void set_row(const fa3_tensor& t, Index at, double value) {
  for (at[t.rank - 1] = 0; at[t.rank - 1] < t.shape[t.rank - 1]; ++at[t.rank - 1])
    verify::set(t, at, value);
}

bool any_not_finite(const fa3_tensor& t) {
  bool found = false;
  verify::for_each_row(t, [&](const Index& row, void*) {
    Index at = row;
    for (int64_t c = 0; c < t.shape[t.rank - 1]; ++c) {
      at[t.rank - 1] = c;
      found = found || !std::isfinite(verify::get(t, at));
    }
  });
  return found;
}

class CpuNan : public ::testing::TestWithParam<int32_t> {
 protected:
  Config causal(int64_t q, int64_t kv) const {
    Config c;
    c.dtype = GetParam();
    c.seqlen_q = q;
    c.seqlen_kv = kv;
    c.heads_q = 2;
    c.heads_kv = 1;
    c.head_dim_qk = c.head_dim_v = 20;
    c.mask = FA3_MASK_CAUSAL;
    return c;
  }
};

TEST_P(CpuNan, InVisibleKey_ReachesExactlyTheRowsThatSeeIt) {
  for (const double bad : {kNan, kInf, -kInf})
    for (const int64_t key : {0, 5, 40, 70, 99})
      expect_right_after(causal(100, 100), [&](const Tensors& t) {
        verify::set(t.k.view, {0, key, 0, 3}, bad);
      });
}

TEST_P(CpuNan, InVisibleValue_ReachesExactlyTheRowsThatSeeIt) {
  for (const double bad : {kNan, kInf, -kInf})
    for (const int64_t key : {0, 5, 40, 70, 99})
      expect_right_after(causal(100, 100), [&](const Tensors& t) {
        verify::set(t.v.view, {0, key, 0, 19}, bad);
      });
}

TEST_P(CpuNan, InfsOfBothSignsInOneColumn_AreNan) {
  expect_right_after(causal(30, 30), [&](const Tensors& t) {
    verify::set(t.v.view, {0, 3, 0, 2}, kInf);
    verify::set(t.v.view, {0, 17, 0, 2}, -kInf);
  });
}

TEST_P(CpuNan, InQuery_StaysInItsRow) {
  for (const double bad : {kNan, kInf})
    for (const int64_t row : {0, 6, 64, 99})
      expect_right_after(causal(100, 130), [&](const Tensors& t) {
        verify::set(t.q.view, {0, row, 1, 7}, bad);
      });
}

TEST_P(CpuNan, InDout_ReachesTheKeysOfItsRowOnly) {
  for (const double bad : {kNan, kInf})
    for (const int64_t row : {0, 6, 64, 99})
      expect_right_after(causal(100, 100), [&](const Tensors& t) {
        verify::set(t.dout.view, {0, row, 1, 7}, bad);
      });
}

TEST_P(CpuNan, InDlse_ReachesTheKeysOfItsRowOnly) {
  Config c = causal(50, 50);
  c.dlse = true;
  expect_right_after(c, [&](const Tensors& t) { verify::set(t.dlse.view, {0, 1, 20}, kNan); });
}

TEST_P(CpuNan, BeforeTheWindow_NeverMatters) {
  Config c = causal(120, 120);
  c.mask = FA3_MASK_WINDOW;
  c.left = 10;
  c.right = 3;
  c.seqlen_q = 40;  // queries are at keys 80 … 119: none sees a key before 70
  for (const double bad : {kNan, kInf}) {
    expect_right_after(c, [&](const Tensors& t) {
      for (int64_t key = 0; key < 70; ++key) {
        set_row(t.k.view, {0, key, 0}, bad);
        set_row(t.v.view, {0, key, 0}, bad);
      }
    });
  }
}

TEST_P(CpuNan, AfterTheDiagonal_NeverMatters) {
  // Keys 61 … 99 hold NaN. Rows 0 … 60 must not be affected, though their tiles cover them.
  const Config c = causal(100, 100);
  expect_right_after(c, [&](const Tensors& t) {
    for (int64_t key = 61; key < 100; ++key) {
      set_row(t.k.view, {0, key, 0}, kNan);
      set_row(t.v.view, {0, key, 0}, kNan);
    }
  });
}

// Keys 20 … 39 are of a document that no query is in, or their ids are scattered among others.
TEST_P(CpuNan, OfAnotherSequenceId_NeverMatters) {
  for (const int64_t queries : {1, 3, 100}) {
    for (const bool scattered : {false, true}) {
      for (const double bad : {kNan, kInf}) {
        Config c = causal(queries, 100);
        c.mask = FA3_MASK_FULL;
        c.sequence_ids = 2;
        expect_right_after(c, [&](const Tensors& t) {
          for (int64_t key = 0; key < 100; ++key) {
            const bool hidden = scattered ? key % 3 == 1 : key >= 20 && key < 40;
            verify::set(t.sequence_ids_kv.view, {0, key}, hidden ? 5 : key % 2);
            if (!hidden) continue;
            set_row(t.v.view, {0, key, 0}, bad);
            if (key % 2 == 0) set_row(t.k.view, {0, key, 0}, bad);
          }
          for (int64_t i = 0; i < queries; ++i)
            verify::set(t.sequence_ids_q.view, {0, i}, scattered ? i % 2 : 0);
        });
      }
    }
  }
}

// NaN and Inf in one document stay there: K, V, Q and dO, forward and backward.
TEST_P(CpuNan, InOneDocument_StaysThere) {
  for (const bool scattered : {false, true}) {
    for (const double bad : {kNan, kInf}) {
      Config c = causal(100, 100);
      c.sequence_ids = 3;
      c.scattered_ids = scattered;
      c.alibi = scattered;
      const auto spoil = [&](const fa3_tensor& place) { verify::set(place, {0, 31, 0, 5}, bad); };
      expect_right_after(c, [&](const Tensors& t) { spoil(t.k.view); });
      expect_right_after(c, [&](const Tensors& t) { spoil(t.v.view); });
      expect_right_after(c, [&](const Tensors& t) { spoil(t.q.view); });
      expect_right_after(c, [&](const Tensors& t) { spoil(t.dout.view); });
    }
  }
}

// Values only: their product with a probability of 0 would be NaN.
TEST_P(CpuNan, HiddenValues_DoNotLeakAsZeroTimesNan) {
  for (const double bad : {kNan, kInf})
    expect_right_after(causal(100, 100), [&](const Tensors& t) {
      for (int64_t key = 61; key < 100; ++key) set_row(t.v.view, {0, key, 0}, bad);
    });
}

TEST_P(CpuNan, BeyondTheSequences_NothingIsRead) {
  // The generator fills unowned rows with NaN already; here every output must be finite.
  Config c = causal(1, 1);
  c.backward = true;
  c.mask = FA3_MASK_FULL;
  c.varlen_q = {7, 0, 70};
  c.varlen_kv = {65, 9, 3};
  c.seqused_q = {6, 0, 69};
  c.seqused_kv = {64, 1, 2};
  c.spare_q = c.spare_kv = 9;
  const kit::Context context = kit::make_context();
  const Tensors t = verify::make_tensors(c);
  const fa3_forward_args forward = verify::forward_args(c, t);
  ASSERT_EQ(fa3_forward(context.get(), &forward, nullptr), FA3_OK) << fa3_last_error();
  EXPECT_FALSE(any_not_finite(forward.o));
  const fa3_backward_args backward = verify::backward_args(c, t);
  ASSERT_EQ(fa3_backward(context.get(), &backward, nullptr), FA3_OK) << fa3_last_error();
  EXPECT_FALSE(any_not_finite(backward.dq));
  EXPECT_FALSE(any_not_finite(backward.dk));
  EXPECT_FALSE(any_not_finite(backward.dv));
}

TEST_P(CpuNan, AnotherSequence_StaysClean) {
  Config c = causal(1, 1);
  c.varlen_q = {10, 20, 30};
  c.varlen_kv = {11, 70, 30};
  expect_right_after(c, [&](const Tensors& t) {
    for (int64_t key = 11; key < 81; ++key) {
      set_row(t.k.view, {key, 0}, kNan);
      set_row(t.v.view, {key, 0}, kInf);
    }
  });
}

// q = 1 and k = −inf make every score −inf.
TEST_P(CpuNan, ScoresMinusInf_FirstTileOrAllOfThem) {
  for (const int64_t keys : {3, 64, 600, 700}) {
    Config c = causal(9, 700);
    c.mask = FA3_MASK_FULL;
    expect_right_after(c, [&](const Tensors& t) {
      verify::fill(t.q.view, 0.25);
      for (int64_t key = 0; key < keys; ++key) set_row(t.k.view, {0, key, 0}, -kInf);
    });
  }
}

TEST_P(CpuNan, DecodeSplits_MergeNanAndMinusInf) {
  for (const double bad : {kNan, kInf, -kInf}) {
    for (const int64_t key : {0, 2000, 4999}) {
      Config c = causal(1, 5000);
      expect_right_after(c, [&](const Tensors& t) {
        verify::fill(t.q.view, 0.25);
        set_row(t.k.view, {0, key, 0}, bad);
      });
      expect_right_after(c, [&](const Tensors& t) { verify::set(t.v.view, {0, key, 0, 1}, bad); });
    }
    expect_right_after(causal(2, 5000), [&](const Tensors& t) {
      verify::fill(t.q.view, 0.25);
      for (int64_t key = 0; key < 2600; ++key) set_row(t.k.view, {0, key, 0}, -kInf);
    });
  }
}

TEST_P(CpuNan, WithSoftcap_InfScoresAreBounded) {
  for (const double bad : {kNan, kInf, -kInf}) {
    Config c = causal(20, 70);
    c.softcap = 5;
    expect_right_after(c, [&](const Tensors& t) {
      verify::fill(t.q.view, 0.25);
      set_row(t.k.view, {0, 40, 0}, bad);
    });
  }
}

// A scale that FP32 cannot hold once gave NaN: all scores are zero then, and masked ones stay -Inf.
// (Gradients by such a scale are in the last places of FP32's subnormals.)
TEST_P(CpuNan, ScaleBelowFp32_GivesMeans) {
  const kit::Context context = kit::make_context();
  for (const double scale : {1e-300, -1e-300, 1e-45, 5e-324}) {
    Config c = causal(37, 41);
    c.softmax_scale = scale;
    const Tensors t = verify::make_tensors(c);
    const fa3_forward_args args = verify::forward_args(c, t);
    ASSERT_EQ(fa3_forward(context.get(), &args, nullptr), FA3_OK) << fa3_last_error();
    for (const verify::OutputResult& r : verify::compare_forward(args))
      EXPECT_TRUE(r.ok) << scale << ": " << verify::to_text(r);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CpuNan, ::testing::Values(FA3_F32, FA3_F16, FA3_BF16),
                         [](const auto& info) { return verify::dtype_text(info.param); });

}  // namespace
}  // namespace fa3
