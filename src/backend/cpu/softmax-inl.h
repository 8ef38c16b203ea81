// SPDX-License-Identifier: BSD-3-Clause
// softmax-inl.h — scores to probabilities, and to dS in the backward, one block at a time, per
// instruction set. A mask is a span of columns per row: whole vectors are computed and the rest of
// the row's tile is set to 0, so the loops have no mask in them. Guarded the Highway way.
#if defined(FA3_BACKEND_CPU_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FA3_BACKEND_CPU_SOFTMAX_INL_H_
#undef FA3_BACKEND_CPU_SOFTMAX_INL_H_
#else
#define FA3_BACKEND_CPU_SOFTMAX_INL_H_
#endif

#include <cmath>

#include "backend/cpu/mask-inl.h"
#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fa3::cpu::HWY_NAMESPACE {

inline constexpr float kInf = std::numeric_limits<float>::infinity();

template <class T>
HWY_ATTR void fill(T* row, int lo, int hi, T value) {
  for (int i = lo; i < hi; ++i) row[i] = value;
}

// Maximum over whole vectors; a NaN is skipped (exp2 brings it back).
HWY_ATTR HWY_INLINE float max_of_row(const float* s, Span span) {
  const DF d;
  VF m0 = hn::Set(d, -kInf), m1 = m0, m2 = m0, m3 = m0;
  int i = span.lo;
  for (; i + 4 * kLanes <= span.hi; i += 4 * kLanes) {
    m0 = hn::Max(load(s + i), m0);
    m1 = hn::Max(load(s + i + kLanes), m1);
    m2 = hn::Max(load(s + i + 2 * kLanes), m2);
    m3 = hn::Max(load(s + i + 3 * kLanes), m3);
  }
  for (; i < span.hi; i += kLanes) m0 = hn::Max(load(s + i), m0);
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
}

// ALiBi of one row, see ScoreTerms.
struct RowBias {
  bool on;
  VF position, slope_high, slope_low, scale_high, scale_low;

  HWY_ATTR RowBias(const ScoreTerms& terms, int row) : on(terms.position != nullptr) {
    const DF d;
    position = hn::Set(d, on ? terms.position[row] : 0.0f);
    slope_high = hn::Set(d, on ? terms.slope_high[row] : 0.0f);
    slope_low = hn::Set(d, on ? terms.slope_low[row] : 0.0f);
    scale_high = hn::Set(d, terms.scale_high);
    scale_low = hn::Set(d, terms.scale_low);
  }

  // Of the columns from the i-th on. An infinite score stays what it is: times scale_low it would
  // be NaN.
  HWY_ATTR HWY_INLINE VF operator()(VF score, int i) const {
    constexpr float kFinite = 0x1p100f;
    const VF distance = hn::Abs(hn::Sub(position, hn::Iota(DF(), static_cast<float>(i))));
    const VF low = hn::Mul(at_most(kFinite, at_least(-kFinite, score)), scale_low);
    const VF bias = hn::MulAdd(distance, slope_high, hn::MulAdd(distance, slope_low, low));
    return hn::MulAdd(score, scale_high, bias);
  }
};

// The columns of a row that have its id; all of them in a row without gaps.
struct RowIds {
  bool on;
  const int32_t* column_id;
  hn::Vec<DI> id;

  HWY_ATTR RowIds(const ScoreTerms& terms, int row)
      : on(terms.column_id != nullptr && terms.gaps[row] != 0), column_id(terms.column_id) {
    id = hn::Set(DI(), on ? terms.row_id[row] : 0);
  }
  HWY_ATTR HWY_INLINE auto same(int i) const {
    return hn::RebindMask(DF(), hn::Eq(hn::LoadU(DI(), column_id + i), id));
  }
};

// Scores of a row with their terms: −inf where an id or the mask hides a key.
HWY_ATTR void add_terms(const ScoreTerms& terms, int row, float* s, Span visible) {
  const Span vectors = whole_vectors(visible);
  const RowBias bias(terms, row);
  if (terms.mask_at != nullptr) {
    const VF none = hn::Set(DF(), -kInf);
    load_mask(terms, row, visible);
    for (int i = vectors.lo; i < vectors.hi; i += kLanes) {
      const VF m = load(terms.mask_row + i);
      const VF sum = hn::Add(bias(load(s + i), i), m);
      store(hn::IfThenElse(hn::Eq(m, none), none, sum), s + i);
    }
  } else if (bias.on) {
    for (int i = vectors.lo; i < vectors.hi; i += kLanes) store(bias(load(s + i), i), s + i);
  }
  const RowIds ids(terms, row);
  if (ids.on) {
    const VF hidden = hn::Set(DF(), -kInf);
    for (int i = vectors.lo; i < vectors.hi; i += kLanes)
      store(hn::IfThenElse(ids.same(i), load(s + i), hidden), s + i);
  }
}

// From here on max·scale, rounded, may be off by 1 and more: the exponent of a row's greatest score
// would not be about 0, and P not about 1 but anything up to Inf.
inline constexpr float kHugeShift = 0x1p24f;

// p ← exp2(s·scale − shift), or with kHuge exp2((s − shift)·scale); returns the sum before
// rounding. p may be s: element i of P never lies beyond element i of S.
template <bool kHuge, class P>
HWY_ATTR HWY_INLINE float exp_row(const float* s, P* out, Span span, float scale, float shift) {
  const DF d;
  const VF c = hn::Set(d, scale);
  const VF mc = hn::Set(d, shift);
  VF sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  const auto step = [&](int i, VF& sum) HWY_ATTR {
    const VF x = load(s + i);
    const VF p = exp2(kHuge ? hn::Mul(hn::Sub(x, mc), c) : hn::MulSub(x, c, mc));
    sum = hn::Add(sum, p);
    store(p, out + i);
  };
  int i = span.lo;
  for (; i + 4 * kLanes <= span.hi; i += 4 * kLanes) {
    step(i, sum0);
    step(i + kLanes, sum1);
    step(i + 2 * kLanes, sum2);
    step(i + 3 * kLanes, sum3);
  }
  for (; i < span.hi; i += kLanes) step(i, sum0);
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

// P = float, or Bf16 where the next GEMM multiplies BF16 pairs.
template <class P>
HWY_ATTR void softmax(const SoftmaxBlock& block) {
  const DF d;
  for (int r = 0; r < block.rows; ++r) {
    float* s = block.s + r * block.ld;
    P* const out = reinterpret_cast<P*>(s);
    const Span visible = block.visible[r];
    const Span tile = block.tile[r / kTileRows];
    block.rescale[r] = 1.0f;
    if (visible.empty()) {
      fill(out, tile.lo, tile.hi, P{});
      continue;
    }
    const Span vectors = whole_vectors(visible);
    if (block.softcap_in != 0.0f) {
      const VF k = hn::Set(d, block.softcap_in);
      for (int i = vectors.lo; i < vectors.hi; i += kLanes)
        store(tanh(hn::Mul(load(s + i), k)), s + i);
    }
    if (block.terms != nullptr) add_terms(*block.terms, r, s, visible);
    fill(s, vectors.lo, visible.lo, -kInf);
    fill(s, visible.hi, vectors.hi, -kInf);
    const float m_old = block.row_max[r];
    const float m = std::fmax(m_old, max_of_row(s, vectors));
    // While every visible score is −inf, m is too: shift 0 then gives p = 0 rather than NaN.
    const float shift = m == -kInf ? 0.0f : m * block.scale_log2e;
    const bool huge = std::fabs(shift) >= kHugeShift;
    const float sum = huge ? exp_row<true>(s, out, vectors, block.scale_log2e, m)
                           : exp_row<false>(s, out, vectors, block.scale_log2e, shift);
    if (m != m_old) {
      block.rescale[r] =
          std::exp2(huge ? (m_old - m) * block.scale_log2e : m_old * block.scale_log2e - shift);
      block.row_max[r] = m;
    }
    block.row_sum[r] = block.row_sum[r] * block.rescale[r] + sum;
    fill(out, tile.lo, vectors.lo, P{});
    fill(out, vectors.hi, tile.hi, P{});
  }
}

// P and dS as for softmax(). kTerms: with terms; without them the loop pays nothing for them.
template <class P, bool kTerms>
HWY_ATTR void grad_rows(const GradBlock& block) {
  static constexpr ScoreTerms kNone;
  const ScoreTerms& terms = kTerms ? *block.terms : kNone;
  const DF d;
  const VF c = hn::Set(d, block.scale_log2e);
  const VF cap = hn::Set(d, block.softcap_in);
  const VF one = hn::Set(d, 1.0f);
  const VF none = hn::Set(d, -kInf);
  for (int r = 0; r < block.rows; ++r) {
    float* s = block.s + r * block.ld;
    float* dp = block.dp + r * block.ld;
    P* const p_out = reinterpret_cast<P*>(s);
    P* const ds_out = reinterpret_cast<P*>(dp);
    const Span tile = block.tile[r / kTileRows];
    const Span visible = block.visible[r].empty() ? Span{tile.hi, tile.hi} : block.visible[r];
    const Span vectors = whole_vectors(visible);
    const RowBias bias(terms, r);
    const RowIds ids(terms, r);
    const bool masked = kTerms && terms.mask_at != nullptr;
    if (masked && !visible.empty()) load_mask(terms, r, visible);
    for (int i = visible.empty() ? vectors.hi : vectors.lo; i < vectors.hi; i += kLanes) {
      VF score = load(s + i);
      VF slope = one;
      if (block.softcap_in != 0.0f) {
        score = tanh(hn::Mul(score, cap));
        slope = hn::NegMulAdd(score, score, one);
      }
      VF mask = hn::Zero(d);
      if (masked) mask = load(terms.mask_row + i);
      if (kTerms && (bias.on || masked)) score = hn::Add(bias(score, i), mask);
      // P ≤ 1, but LSE in FP32 is off by more than 1 where it is huge.
      VF p = exp2(at_most(
          1.0f, hn::Sub(hn::MulSub(score, c, load(block.lse_high + i)), load(block.lse_low + i))));
      VF ds = hn::Mul(p, hn::Sub(load(dp + i), load(block.delta + i)));
      if (block.softcap_in != 0.0f && !block.of_mask) ds = hn::Mul(ds, slope);
      if (masked) {
        const auto hidden = hn::Eq(mask, none);
        p = hn::IfThenZeroElse(hidden, p);
        ds = hn::IfThenZeroElse(hidden, ds);
      }
      if (kTerms && ids.on) {
        p = hn::IfThenElseZero(ids.same(i), p);
        ds = hn::IfThenElseZero(ids.same(i), ds);
      }
      store(p, p_out + i);
      store(ds, ds_out + i);
    }
    for (P* row : {p_out, ds_out}) {
      fill(row, tile.lo, visible.lo, P{});
      fill(row, visible.hi, tile.hi, P{});
    }
  }
}
template <class P>
HWY_ATTR void softmax_grad(const GradBlock& block) {
  block.terms != nullptr ? grad_rows<P, true>(block) : grad_rows<P, false>(block);
}

}  // namespace fa3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
