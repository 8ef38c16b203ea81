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
// would not be about 0, and P not about 1 but anything up to Inf. Without fused multiply-adds
// score·scale is rounded, too, and off by as much of 1 as its last place is.
inline constexpr bool kFused = !(HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2) &&
                               HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128;
inline constexpr float kHugeShift = kFused ? 0x1p24f : 0x1p10f;

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

// Scores of one key as the backward makes them, in the spans of a GradBlock. kTerms: with terms;
// without them the loops pay nothing for them.
template <bool kTerms>
struct KeyScores {
  static constexpr ScoreTerms kNone{};

  const float* s;
  bool capped, masked;
  const float* mask_row;
  RowBias bias;
  RowIds ids;
  VF cap, one, none;

  static const ScoreTerms& terms_of(const GradBlock& block) {
    return kTerms && block.terms != nullptr ? *block.terms : kNone;
  }
  HWY_ATTR KeyScores(const GradBlock& block, int row, Span visible)
      : s(block.s + row * block.ld),
        capped(block.softcap_in != 0.0f),
        masked(kTerms && terms_of(block).mask_at != nullptr),
        mask_row(terms_of(block).mask_row),
        bias(terms_of(block), row),
        ids(terms_of(block), row) {
    const DF d;
    cap = hn::Set(d, block.softcap_in);
    one = hn::Set(d, 1.0f);
    none = hn::Set(d, -kInf);
    if (masked && !visible.empty()) load_mask(terms_of(block), row, visible);
  }

  // From the i-th query on; `slope`: of softcap's tanh there; `mask`: what is added.
  HWY_ATTR HWY_INLINE VF at(int i, VF& slope, VF& mask) const {
    VF score = load(s + i);
    slope = one;
    if (capped) {
      score = tanh(hn::Mul(score, cap));
      slope = hn::NegMulAdd(score, score, one);
    }
    mask = hn::Zero(DF());
    if (masked) mask = load(mask_row + i);
    return kTerms && (bias.on || masked) ? hn::Add(bias(score, i), mask) : score;
  }
  // Where id and mask let the query see the key.
  HWY_ATTR HWY_INLINE VF or_zero(VF x, int i, VF mask) const {
    if (masked) x = hn::IfThenZeroElse(hn::Eq(mask, none), x);
    return kTerms && ids.on ? hn::IfThenElseZero(ids.same(i), x) : x;
  }
  HWY_ATTR HWY_INLINE VF or_none(VF x, int i, VF mask) const {
    if (masked) x = hn::IfThenElse(hn::Eq(mask, none), none, x);
    return kTerms && ids.on ? hn::IfThenElse(ids.same(i), x, none) : x;
  }
};

// P and dS as for softmax(). kLargest: block.largest is there.
template <class P, bool kTerms, bool kLargest>
HWY_ATTR void grad_rows(const GradBlock& block) {
  const DF d;
  const VF c = hn::Set(d, block.scale_log2e);
  for (int r = 0; r < block.rows; ++r) {
    float* dp = block.dp + r * block.ld;
    P* const p_out = reinterpret_cast<P*>(block.s + r * block.ld);
    P* const ds_out = reinterpret_cast<P*>(dp);
    const Span tile = block.tile[r / kTileRows];
    const Span visible = block.visible[r].empty() ? Span{tile.hi, tile.hi} : block.visible[r];
    const Span vectors = whole_vectors(visible);
    const KeyScores<kTerms> scores(block, r, visible);
    for (int i = visible.empty() ? vectors.hi : vectors.lo; i < vectors.hi; i += kLanes) {
      VF slope, mask;
      VF score = scores.at(i, slope, mask);
      if (kLargest) score = hn::Sub(score, load(block.largest + i));
      // P ≤ 1, but LSE in FP32 is off by more than 1 where it is huge.
      VF p = exp2(at_most(
          1.0f, hn::Sub(hn::MulSub(score, c, load(block.lse_high + i)), load(block.lse_low + i))));
      VF ds = hn::Mul(p, hn::Sub(load(dp + i), load(block.delta + i)));
      if (scores.capped && !block.of_mask) ds = hn::Mul(ds, slope);
      store(scores.or_zero(p, i, mask), p_out + i);
      store(scores.or_zero(ds, i, mask), ds_out + i);
    }
    for (P* row : {p_out, ds_out}) {
      fill(row, tile.lo, visible.lo, P{});
      fill(row, visible.hi, tile.hi, P{});
    }
  }
}
template <class P>
HWY_ATTR void softmax_grad(const GradBlock& block) {
  if (block.largest != nullptr) return grad_rows<P, true, true>(block);
  block.terms != nullptr ? grad_rows<P, true, false>(block) : grad_rows<P, false, false>(block);
}

// See Kernels.
HWY_ATTR void row_sums(const GradBlock& block, float* largest, float* sum) {
  const DF d;
  const VF c = hn::Set(d, block.scale_log2e);
  const VF none = hn::Set(d, -kInf);
  const auto shift_of = [&](VF m) HWY_ATTR {
    return hn::IfThenZeroElse(hn::Eq(m, none), m);  // −inf − −inf would be NaN
  };
  Span all{block.visible[0]};
  for (int r = 0; r < block.rows; ++r) {
    const Span visible = block.visible[r], vectors = whole_vectors(visible);
    if (visible.empty()) continue;
    all = all.empty() ? visible : Span{min(all.lo, visible.lo), max(all.hi, visible.hi)};
    float* const s = block.s + r * block.ld;
    const KeyScores<true> scores(block, r, visible);
    for (int i = vectors.lo; i < vectors.hi; i += kLanes) {
      VF slope, mask;
      const VF score = scores.at(i, slope, mask);
      store(scores.or_none(score, i, mask), s + i);
    }
    fill(s, vectors.lo, visible.lo, -kInf);
    fill(s, visible.hi, vectors.hi, -kInf);
  }
  // Columns of whole vectors, so that every score is in registers once.
  const Span columns = whole_vectors(all);
  for (int i = columns.lo; i < columns.hi; i += kLanes) {
    const VF before = load(largest + i);
    VF m = before;
    const auto sees = [&](int r) {
      const Span vectors = whole_vectors(block.visible[r]);
      return !block.visible[r].empty() && i >= vectors.lo && i < vectors.hi;
    };
    for (int r = 0; r < block.rows; ++r)
      if (sees(r)) m = hn::Max(load(block.s + r * block.ld + i), m);
    const VF shift = shift_of(m);
    VF total = hn::Mul(load(sum + i), exp2(hn::Mul(hn::Sub(before, shift), c)));
    for (int r = 0; r < block.rows; ++r)
      if (sees(r))
        total = hn::Add(total, exp2(hn::Mul(hn::Sub(load(block.s + r * block.ld + i), shift), c)));
    store(m, largest + i);
    store(total, sum + i);
  }
}

}  // namespace fa3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
