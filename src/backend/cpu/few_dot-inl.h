// SPDX-License-Identifier: BSD-3-Clause
// few_dot-inl.h — scores of a handful of query rows, for one instruction set and one operand type.
// Included once per operand type inside HWY_NAMESPACE, behind few_rows-inl.h and with the macros
// that gemm-inl.h describes, so no include guard.

namespace FA3_OP {

inline constexpr int kElements = kLanes * FA3_OP_UNIT;  // of a vector of 32-bit units

// The units of kElements elements, or of the first n.
template <class T>
FA3_OP_ATTR HWY_INLINE VF load_units(const T* p) {
  if constexpr (FA3_OP_UNIT == 2) {
    const hn::Repartition<uint16_t, DF> d16;
    return hn::BitCast(DF(), hn::LoadU(d16, &p->bits));
  } else {
    return load(p);
  }
}
template <class T>
FA3_OP_ATTR VF load_units(const T* p, int n) {
  T padded[kElements] = {};
  for (int i = 0; i < n; ++i) padded[i] = p[i];
  return load_units(padded);
}

// c(m, j) = Σ a(m, i)·b(j, i) for N keys, or the first, in vectors along the head dimension.
template <int MR, int N, class T>
FA3_OP_ATTR HWY_INLINE void dot_keys(const float* a, int64_t lda, const T* const* key, int cols,
                                     float* c, int64_t ldc) {
  const DF d;
  VF sum[MR][kKeys];
  for (int m = 0; m < MR; ++m)
    for (int j = 0; j < N; ++j) sum[m][j] = hn::Zero(d);
  for (int i = 0; i < cols; i += kElements) {
    VF x[N];
    for (int j = 0; j < N; ++j)
      x[j] = i + kElements <= cols ? load_units(key[j] + i) : load_units(key[j] + i, cols - i);
    for (int m = 0; m < MR; ++m) {
      const VF y = load(a + m * lda + i / FA3_OP_UNIT);
      for (int j = 0; j < N; ++j) sum[m][j] = FA3_OP_DOT(y, x[j], sum[m][j]);
    }
  }
  for (int m = 0; m < MR; ++m) {
    if constexpr (N == kKeys) {
      store_sums(sum[m], c + m * ldc);
    } else {
      c[m * ldc] = hn::GetLane(hn::SumOfLanes(d, sum[m][0]));
    }
  }
}

// The scores of a chunk of keys.
template <class T>
FA3_OP_ATTR void dot_chunk(int rows, const float* a, int64_t lda, const T* b, const Rows& keys,
                           IndexRange chunk, Ahead ahead, float* c, int64_t ldc) {
  const auto last = static_cast<int>(chunk.hi);
  for_each_group<kMostDots>(rows, [&](int m, auto mr) FA3_OP_ATTR {
    constexpr int kRows = decltype(mr)::value;
    auto j = static_cast<int>(chunk.lo);
    for (; j + kKeys <= last; j += kKeys) {
      const T* key[kKeys];
      for (int n = 0; n < kKeys; ++n) {
        key[n] = b + keys.at(j + n);
        prefetch(b, keys, j + n + kAhead, ahead);
      }
      dot_keys<kRows, kKeys>(a + m * lda, lda, key, keys.cols, c + m * ldc + j, ldc);
    }
    for (; j < last; ++j) {
      const T* const key = b + keys.at(j);
      dot_keys<kRows, 1>(a + m * lda, lda, &key, keys.cols, c + m * ldc + j, ldc);
    }
    ahead.next();
  });
}

template <int kUnit = FA3_OP_UNIT>
FA3_OP_ATTR void few_dot(int rows, const float* a, int64_t lda, const Rows& keys, float* c,
                         int64_t ldc) {
  const auto of = [&](auto* b) FA3_OP_ATTR {
    const int passes = for_each_group<kMostDots>(rows, [](int, auto) {});
    prefetch_first(b, keys);
    for (int j = 0; j < keys.rows; j += kChunk)
      dot_chunk(rows, a, lda, b, keys, {j, HWY_MIN(j + kChunk, keys.rows)},
                Ahead(keys.cols, passes), c, ldc);
  };
  if constexpr (kUnit == 2) {
    of(static_cast<const Bf16*>(keys.data));
  } else {
    with_type(keys.dtype, keys.data, of);
  }
}

}  // namespace FA3_OP
