// SPDX-License-Identifier: BSD-3-Clause
// mask-inl.h — one row of attn_mask as floats, per instruction set. Guarded the Highway way.
#if defined(FA3_BACKEND_CPU_MASK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FA3_BACKEND_CPU_MASK_INL_H_
#undef FA3_BACKEND_CPU_MASK_INL_H_
#else
#define FA3_BACKEND_CPU_MASK_INL_H_
#endif

#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fa3::cpu::HWY_NAMESPACE {

// Columns [lo, hi) rounded out to whole vectors.
inline Span whole_vectors(Span s) {
  return {s.lo / kLanes * kLanes, (s.hi + kLanes - 1) / kLanes * kLanes};
}

// An element of FA3_BOOL: 0 = hidden.
struct BoolByte {
  uint8_t bits;
};
inline constexpr float kHidden = -std::numeric_limits<float>::infinity();
inline float to_float(BoolByte x) { return x.bits != 0 ? 0.0f : kHidden; }
inline HWY_ATTR VF load(const BoolByte* p) {
  const hn::Rebind<uint8_t, DF> d8;
  const DU du;
  const auto x = hn::PromoteTo(du, hn::LoadU(d8, &p->bits));
  const auto hidden = hn::RebindMask(DF(), hn::Eq(x, hn::Zero(du)));
  return hn::IfThenElseZero(hidden, hn::Set(DF(), kHidden));
}

// Columns `visible` of a row, `step` bytes apart. None beyond them is touched.
template <class T>
HWY_ATTR void widen_mask(const std::byte* at, int64_t step, Span visible, float* out) {
  using fa3::to_float;
  int i = visible.lo;
  if (step == 0) {
    const float value = to_float(*reinterpret_cast<const T*>(at));
    for (; i < visible.hi; ++i) out[i] = value;
    return;
  }
  if (step == sizeof(T)) {
    const T* const row = reinterpret_cast<const T*>(at);
    for (; i + kLanes <= visible.hi; i += kLanes) store(load(row + i), out + i);
    for (; i < visible.hi; ++i) out[i] = to_float(row[i]);
    return;
  }
  for (; i < visible.hi; ++i) out[i] = to_float(*reinterpret_cast<const T*>(at + i * step));
}

// A row of the mask into terms.mask_row, 0 in the vectors beside the visible columns.
HWY_ATTR void load_mask(const ScoreTerms& terms, int row, Span visible) {
  float* const out = terms.mask_row;
  const std::byte* const at = terms.mask_at[row];
  switch (terms.mask_dtype) {
    case FA3_BOOL:
      widen_mask<BoolByte>(at, terms.mask_step, visible, out);
      break;
    case FA3_F16:
      widen_mask<F16>(at, terms.mask_step, visible, out);
      break;
    case FA3_BF16:
      widen_mask<Bf16>(at, terms.mask_step, visible, out);
      break;
    default:
      widen_mask<float>(at, terms.mask_step, visible, out);
  }
  const Span vectors = whole_vectors(visible);
  for (int i = vectors.lo; i < visible.lo; ++i) out[i] = 0.0f;
  for (int i = visible.hi; i < vectors.hi; ++i) out[i] = 0.0f;
}

}  // namespace fa3::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
